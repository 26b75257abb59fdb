"""The guide's table and the tests of it are one list."""

import importlib
from pathlib import Path

from .rows import TRIED, rows_of_the_guide


def test_every_row_of_the_guide_is_tried_and_every_test_is_of_a_row():
    for file in Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(f"{__package__}.{file.stem}")
    assert sorted(TRIED) == sorted(rows_of_the_guide())
    assert all(TRIED.values())
