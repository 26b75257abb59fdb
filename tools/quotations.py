"""What a notebook quotes from the package with `show_source`, and whether it shows what is there today."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

from nbformat import NotebookNode

from dtlearn.notebook.source import Source, quote


class Quotation(NamedTuple):
    """One call of `show_source`: in which cell, what it names, and the source as it is now."""

    cell_id: str
    name: str
    source: Source


def quotations(notebook: NotebookNode) -> Iterator[Quotation]:
    """All calls of `show_source`, in their order. Executes the imports of the notebook, and nothing else of it."""
    names: dict[str, Any] = {}
    for cell in notebook.cells:
        tree = _parsed(cell)
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                exec(ast.unparse(node), names)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("show_source"):
                name = ast.unparse(node.args[0])
                options = {option.arg: ast.literal_eval(option.value) for option in node.keywords}
                yield Quotation(cell.id, name, quote(eval(name, names), **options))


def outdated(fresh: NotebookNode, built: NotebookNode) -> Iterator[str]:
    """Which quotations of a built notebook are not the package's code of today, or have other lines there.

    Args:
        fresh: the notebook of the source, without outputs.
        built: the same cells, with the outputs of its latest run.
    """
    shown = {cell.id: [_plain(output) for output in cell.outputs] for cell in built.cells if cell.cell_type == "code"}
    try:
        for cell_id, name, source in quotations(fresh):
            if cell_id in shown and str(source).rstrip() not in shown[cell_id]:
                yield f"cell {cell_id}: shows {name} as it was, not as it is; run make notebooks"
    except (ImportError, AttributeError, NameError, ValueError) as error:
        yield f"what it quotes is not there: {error}"


def _plain(output: NotebookNode) -> str:
    return output.get("data", {}).get("text/plain", "").rstrip()


def _parsed(cell: NotebookNode) -> ast.Module:
    """The Python of a cell; of one that holds none, or another language, an empty module."""
    if cell.cell_type != "code":
        return ast.Module([], [])
    lines = [line for line in cell.source.splitlines(True) if not line.lstrip().startswith(("%", "!"))]
    try:
        return ast.parse("".join(lines))
    except SyntaxError:  # %%bash, say; `long_bodies` tells of a fault in Python
        return ast.Module([], [])
