"""The shell of a rank: an end that a cell asks for is that cell's, and a deep error is told at once."""

import re

import pytest

from dtlearn.runtime.errors import CellError

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("leave", ["exit", "quit", "sys.exit"])
def test_an_exit_ends_the_cell_that_asks_for_it_and_not_a_later_one(world, cell, leave):
    with pytest.raises(CellError, match="rank 0 raised SystemExit"):
        cell(f"import sys\nkept = rank\nif rank == 0:\n    {leave}()")
    cell("import time\ntime.sleep(1.5)\ndist.barrier()")  # IPython's own would end the kernel by now
    assert world.gather("kept") == list(range(world.size))


def test_a_recursion_shows_the_learners_lines_and_says_that_they_repeat(cell):
    with pytest.raises(CellError, match="raised RecursionError") as caught:
        cell("class M(torch.nn.Module):\n    def forward(self, x):\n        return self(x)\nM()(1)", number=4)
    text = _ANSI.sub("", caught.value.failures[0].traceback)
    assert "Cell In[4], line 4, in <module>" in text and "[Previous line repeated" in text
    assert "module.py" not in text and len(text.splitlines()) < 30
