"""Right answers that are unlike the official ones pass: a check judges what the text asks for, and nothing else."""

from pathlib import Path

import pytest

from dtlearn.course import load_course
from tests.course.test_exercises import judged

COURSE = load_course()
RIGHT = sorted((Path(__file__).parent / "right" / "ch03_data_parallel").glob("*/*.py"))


@pytest.mark.parametrize("path", RIGHT, ids=[f"{path.parent.name}-{path.stem}" for path in RIGHT])
def test_a_right_answer_of_another_kind_passes(path: Path):
    verdict = judged(COURSE.exercise(f"ch03.{path.parent.name}"), path.read_text("utf-8"))
    assert verdict.passed, verdict.first_fault
