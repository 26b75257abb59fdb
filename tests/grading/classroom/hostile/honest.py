"""Hand-ins of students who mean well: right, wrong, unfinished, late, handed in twice, as an archive, as a notebook."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.grading.small_course import RIGHT, STUB, WRONG

from .hand_in import NAME

RULES = """\
[late]
per_day = 0.25
[due]
ch01 = 2100-01-01T00:00:00Z
"""
_LATE = "2100-01-02T18:00Z"  # the second day has begun
Row = tuple[str, str, float]  # state, code, points in the table
_FULL: Row = ("passed", "", 4.0)


def _file(folder: Path, name: str, source: str) -> None:
    (folder / name).mkdir()
    (folder / name / NAME).write_text(source)


def _zip(folder: Path, name: str, source: str) -> None:
    with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
        archive.writestr(f"ch01_small/{NAME}", source)


def _notebook(folder: Path, name: str) -> None:
    cells = [{"cell_type": "code", "source": text} for text in ("import torch", f"%%exercise ch01.average\n{RIGHT}")]
    (folder / name).mkdir()
    (folder / name / "ch01.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))


def _again(folder: Path, name: str) -> None:
    _zip(folder, f"{name}@2026-11-19T12:00+01:00", RIGHT)
    _file(folder, f"{name}@2026-11-19T10:30Z", WRONG)  # half an hour older, and last in the order of names


# How each is made, and its row. Others of the class rely on the first two.
_KINDS: list[tuple[Callable[[Path, str], object], Row]] = [
    (lambda f, n: _file(f, n, RIGHT), _FULL),
    (lambda f, n: _file(f, n, WRONG), ("failed", "DTL-VALUE-FACTOR", 0.0)),
    (lambda f, n: _zip(f, n, RIGHT), _FULL),
    (lambda f, n: _file(f, n, STUB), ("not-attempted", "DTL-STUB", 0.0)),
    (lambda f, n: _file(f, f"{n}@{_LATE}", RIGHT), ("passed", "", 2.0)),
    (_again, _FULL),
    (_notebook, _FULL),
    (lambda f, n: _file(f, n, RIGHT.replace("def average(", "def average[")), ("failed", "DTL-SYNTAX", 0.0)),
    (lambda f, n: None, ("not-attempted", "DTL-MISSING", 0.0)),
    (lambda f, n: _file(f, n, RIGHT.replace("x.clone()", "x.clowns()")), ("failed", "DTL-RAISED", 0.0)),
]


def make_honest(folder: Path, number: int) -> tuple[str, Row]:
    """Hand in as the student of that number does. Returns the student's name, and the row that it must become."""
    name = f"honest-{number}"
    make, row = _KINDS[number % len(_KINDS)]
    make(folder, name)
    return name, row
