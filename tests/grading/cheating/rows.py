"""The table "What remains possible" of the instructor's guide: its rows, and which of them a test tries."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from dtlearn.runtime.machine.isolation import probe

GUIDE = Path(__file__).parents[3] / "docs" / "instructor.md"
TRIED: dict[str, list[str]] = {}  # names of tests by the row that they try
T = TypeVar("T", bound=Callable)
needs_level_2 = pytest.mark.skipif(probe().level < 2, reason="no namespaces on this machine")
LEVELS = [1, pytest.param(2, marks=needs_level_2)]


def tries(row: str) -> Callable[[T], T]:
    """Marks a test: it tries what that row of the guide says, at the levels of its columns."""

    def note(test: T) -> T:
        TRIED.setdefault(row, []).append(test.__name__)
        return test

    return note


def rows_of_the_guide() -> list[str]:
    """What an answer may try, by the guide."""
    table = GUIDE.read_text("utf-8").split("| an answer that |", 1)[1].split("\n\n", 1)[0]
    return [re.match(r"\| (.*?) \|", line)[1] for line in table.splitlines()[2:]]
