"""A cell is an answer exactly where IPython would run it as one."""

import json

import pytest
from IPython.core.interactiveshell import InteractiveShell

from dtlearn.grading.classroom.reading.cells import answers_in, exercise_of

MAGIC = "%%exercise ch01.mean"
CELLS = {
    "plain": (f"{MAGIC}\nx = 1\n", True),
    "empty lines above": (f"\n \n\n{MAGIC}\nx = 1\n", True),
    "indented": (f"    {MAGIC}\n    x = 1\n", True),
    "from a terminal": (f"In [3]: {MAGIC}\n   ...: x = 1\n", True),
    "timed": (f"%%time\n{MAGIC}\nx = 1\n", True),
    "captured and timed": (f"\n%%capture out\n\n%%time\n{MAGIC}\nx = 1\n", True),
    "a comment above": (f"# mine\n{MAGIC}\nx = 1\n", False),
    "an import above": (f"import torch\n{MAGIC}\nx = 1\n", False),
    "written to a file": (f"%%writefile out.txt\n{MAGIC}\nx = 1\n", False),
    "another magic": ("%%exercises ch01.mean\nx = 1\n", False),
    "tried only": ("%%try ch01.mean\nx = 1\n", False),
}


@pytest.fixture(scope="module")
def shell():
    """IPython itself, with an `%%exercise` that notes what it is given."""
    shell = InteractiveShell()
    shell.ran = []
    shell.register_magic_function(lambda line, cell: shell.ran.append((line, cell)), "cell", "exercise")
    shell.register_magic_function(lambda line, cell: None, "cell", "try")
    return shell


@pytest.mark.parametrize("what", CELLS)
def test_the_rule_is_that_of_ipython(shell, what, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cell, is_answer = CELLS[what]
    shell.ran.clear()
    shell.run_cell(cell)
    assert shell.ran == ([("ch01.mean", "x = 1\n")] if is_answer else [])
    assert exercise_of(cell) == (("ch01.mean", "x = 1\n") if is_answer else ("", ""))


def test_cells_are_numbered_as_they_are_seen():
    kinds = ["markdown", "code", "code", "code"]
    texts = ["# Title", f"{MAGIC}\nx = 1\n", "%%exercise ch09.other\n", f"\n{MAGIC}\nx = 2\n"]
    cells = [{"cell_type": k, "source": t} for k, t in zip(kinds, texts, strict=True)]
    found = answers_in(json.dumps({"cells": cells}), {"ch01.mean"})
    assert [(number, text.splitlines()[1]) for number, text in found["ch01.mean"]] == [(2, "x = 1"), (4, "x = 2")]
    assert set(found) == {"ch01.mean"}
