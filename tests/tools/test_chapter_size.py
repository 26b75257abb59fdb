"""How a chapter's length is counted."""

import nbformat
from chapter_size import sizes

CELLS = [
    ("markdown", "# The core path\n\nThree more words.\n\n| a | b |\n|---|---|\n| 1 | 2 |", {}),
    ("code", "x = 1\n\ny = 2", {}),
    ("code", "z = 3", {"jupyter": {"source_hidden": True}}),
    ("code", "# %%exercise ch01.who_am_i\npass".removeprefix("# "), {}),
    ("markdown", "text\n\n# Further", {}),
    ("code", "w = 4", {}),
    ("markdown", "## Glossary\n\nnot counted at all", {}),
]


def test_core_path_and_whole():
    new = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    book = nbformat.v4.new_notebook(cells=[new[kind](text, metadata=data) for kind, text, data in CELLS])
    core, whole = sizes(book)
    assert (core.words, core.tables, core.exercises) == (3 + 3 + 4, 1, 1)
    assert (core.visible_cells, core.visible_lines, core.hidden_cells, core.hidden_lines) == (1, 2, 1, 1)
    assert (whole.words, whole.visible_cells, whole.tables) == (10 + 2, 2, 1)


def test_a_chapter_without_a_core_path():
    core, whole = sizes(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("two words")]))
    assert (core.words, whole.words) == (0, 2)
