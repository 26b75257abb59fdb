"""Print how long each chapter is: of its core path and of the whole, words, code cells, lines and tables.

    python tools/chapter_size.py [slug ...]

Words are those of text that one reads: no glossary and no task of an exercise, whose minutes are counted apart. A cell
with folded input counts as hidden. The core path ends where "# Further" begins.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import nbformat

from dtlearn.course import load_course

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Size:
    """The size of a part of a chapter."""

    words: int = 0
    visible_cells: int = 0
    visible_lines: int = 0
    hidden_cells: int = 0
    hidden_lines: int = 0
    tables: int = 0
    exercises: int = 0

    def count(self, cell: Any) -> None:
        """Add a cell."""
        text = cell.source
        if cell.cell_type == "markdown":
            if cell.get("id", "").endswith("-task") or text.lstrip().startswith(("**Exercise", "## Glossary")):
                return
            self.words += len(re.sub(r"[|*#`$>]|:?-{3,}:?", " ", text).split())
            self.tables += len(re.findall(r"^\|[-| :]+\|$", text, re.MULTILINE))
            return
        lines = sum(bool(line.strip()) for line in text.splitlines())
        if "%%exercise" in text:
            self.exercises += 1
        elif cell.metadata.get("jupyter", {}).get("source_hidden"):
            self.hidden_cells, self.hidden_lines = self.hidden_cells + 1, self.hidden_lines + lines
        else:
            self.visible_cells, self.visible_lines = self.visible_cells + 1, self.visible_lines + lines


def sizes(notebook: Any) -> tuple[Size, Size]:
    """The size of the core path, empty if the chapter has none, and of the whole chapter."""
    core, whole, in_core = Size(), Size(), True
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and re.search(r"^# Further", cell.source, re.MULTILINE):
            in_core = False
        whole.count(cell)
        if in_core:
            core.count(cell)
    return (Size() if in_core else core), whole


def main(slugs: list[str]) -> None:
    """Print the table."""
    columns = [field.name for field in fields(Size)]
    print(f"{'':32}" + "".join(f"{name.replace('_', ' '):>15}" for name in columns) + "   minutes")
    for chapter in load_course(ROOT).chapters:
        path = ROOT / "notebooks" / f"{chapter.slug}.ipynb"
        if not path.is_file() or (slugs and chapter.slug not in slugs):
            continue
        for part, size in zip(("core", "whole"), sizes(nbformat.read(path, as_version=4)), strict=True):
            minutes = chapter.minutes if part == "whole" else chapter.core_minutes
            print(f"{chapter.slug[:25]:26}{part:6}" + "".join(f"{getattr(size, n):15}" for n in columns), minutes)


if __name__ == "__main__":
    main(sys.argv[1:])
