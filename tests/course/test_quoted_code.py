"""Code that a chapter quotes fits on a slide: no line is wider than 100 characters, and a listing is short.

A page, which is quoted whole, fits on two: tests/test_pages.py.
"""

from pathlib import Path

import pytest
from build_notebooks import from_source
from quotations import quotations

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "notebooks" / "src").glob("ch*.py"))
WIDTH, LINES = 100, 30


def faults(texts: dict[str, str]) -> list[str]:
    """Which quotations are no slide, and why."""
    wide = [
        f"{name}: {len(line)} characters: {line.strip()}"
        for name, text in texts.items()
        for line in text.splitlines()
        if len(line) > WIDTH
    ]
    long = [
        f"{name}: {n} lines"
        for name, text in texts.items()
        if (n := len(text.splitlines())) > LINES and not name.startswith("page_")
    ]
    private = [f"{name}: a private name" for name in texts if any(part.startswith("_") for part in name.split("."))]
    return [*wide, *long, *private]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda file: file.stem)
def test_quoted_code_fits_on_a_slide(chapter):
    texts = {name: source.code for _, name, source in quotations(from_source(chapter))}
    assert len(texts) >= 2
    assert faults(texts) == []


def test_what_does_not_fit_is_found():
    planted = {"a": f"{'x' * WIDTH}\n" * LINES, "b.c": "x" * (WIDTH + 1), "d": "x\n" * (LINES + 1), "e._f": "x"}
    said = faults(planted)
    assert [text.split(":")[0] for text in said] == ["b.c", "d", "e._f"]
