"""What `build_notebooks.py --check` looks for in a notebook, without executing it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

MAX_BODY = 15  # lines of a function or class in a cell; algorithms belong in the package, where they are tested

ANSI = re.compile(r"\x1b\[[0-9;]*m")
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{9,16}\b")
_MACHINE_PATH = re.compile(
    r"(?<!course>)(?<!python>)(?<![\w.:/~-])/(?:home|Users|root|tmp|var|opt|mnt|private|usr)/[\w.-]+"
)
_DATA_URI = re.compile(r"data:image/[\w+.-]+;base64,[A-Za-z0-9+/=]+")


def stale(fresh: NotebookNode, built: NotebookNode) -> Iterator[str]:
    """Where a built notebook is not what its source says."""
    if fresh.metadata != built.metadata or (built.nbformat, built.nbformat_minor) != (4, 5):
        yield "its metadata is not what the builder writes; run make notebooks"
    if len(fresh.cells) != len(built.cells):
        yield f"has {len(built.cells)} cells, its source {len(fresh.cells)}; run make notebooks"
        return
    for new, old in zip(fresh.cells, built.cells, strict=True):
        for part in ("id", "cell_type", "source", "metadata"):
            if new[part] != old.get(part):
                yield f"cell {new.id}: {part} differs from the source; run make notebooks"


def bad_outputs(built: NotebookNode, root: Path) -> Iterator[str]:
    """Outputs that are missing, or that must not be published."""
    code = [cell for cell in built.cells if cell.cell_type == "code" and cell.source.strip()]
    if any(cell.execution_count is None for cell in code):
        yield "was not executed to its end; run make notebooks"
    elif code and not any(cell.outputs for cell in code):
        yield "has no output at all"
    for cell in code:
        may_raise = "raises-exception" in cell.metadata.get("tags", [])
        for output in cell.outputs:
            if output.output_type == "error" and not may_raise:
                yield f"cell {cell.id}: shows {output.ename} but is not tagged raises-exception"
            text = _DATA_URI.sub("", ANSI.sub("", "\n".join(_texts(output))))
            if found := _MACHINE_PATH.search(text) or re.search(re.escape(str(root)), text):
                yield f"cell {cell.id}: its output names a path of this machine ({found[0]})"
            if found := ADDRESS.search(text):
                yield f"cell {cell.id}: its output holds a memory address ({found[0]})"


def _texts(output: NotebookNode) -> Iterator[str]:
    yield output.get("text", "")
    yield output.get("evalue", "")
    yield from output.get("traceback", [])
    for kind, data in output.get("data", {}).items():
        if kind not in ("image/png", "image/jpeg"):
            yield data if isinstance(data, str) else str(data)


def lists_by_chance(cell: NotebookNode) -> Iterator[str]:
    """Lines of wrapped prose that begin with a number and a dot, of which JupyterLab makes a list."""
    if cell.cell_type != "markdown":
        return
    before = 0
    for line in cell.source.splitlines():
        if found := re.match(r"\s*(\d+)[.)] ", line):
            if int(found[1]) not in (1, before + 1):
                yield f"cell {cell.id}: {line.strip()[:40]!r} begins a list with {found[1]}; wrap the text elsewhere"
            before = int(found[1])


def long_bodies(cell: NotebookNode) -> Iterator[str]:
    """Functions and classes in a cell that are too long to be the text's own; they belong in `dtlearn`."""
    if cell.cell_type != "code":
        return
    lines = cell.source.splitlines()
    magic = bool(lines) and lines[0].startswith("%%")
    if magic and lines[0].startswith("%%exercise "):
        return  # the learner's, and its text is that of the stub
    # Line magics and shell lines are no Python; an empty statement keeps the line numbers and the blocks.
    python = [re.sub(r"^(\s*)[%!].*", r"\1pass", line) for line in lines[magic:]]
    try:
        tree = ast.parse("\n".join(python))
    except SyntaxError as error:
        if not magic and "raises-exception" not in cell.metadata.get("tags", []):
            yield f"cell {cell.id}: {error.msg} (line {error.lineno})"
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.body[0].lineno + 1
            if length > MAX_BODY:
                yield f"cell {cell.id}: the body of {node.name} has {length} lines, over {MAX_BODY}; move it to dtlearn"
