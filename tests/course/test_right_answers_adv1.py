"""Right answers that differ in kind from the official ones: each passes."""

from pathlib import Path

import pytest

from dtlearn.course import load_course
from dtlearn.grading.grade import Answer, grade
from dtlearn.grading.locate import find_check, places

COURSE = load_course()
EXERCISES = {(chapter.slug, e.name): e for chapter in COURSE.chapters for e in chapter.exercises}
RIGHT = sorted((Path(__file__).parent / "right" / "ch01_ranks").glob("*/*.py"))


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_unusual_right_answer_passes(path: Path):
    exercise = EXERCISES[(path.parent.parent.name, path.parent.name)]
    answer = Answer(path.read_text("utf-8"), places(COURSE, exercise).stub.name, exercise.name)
    verdict = grade(exercise, find_check(COURSE, exercise), answer, seed=1)
    assert verdict.passed and verdict.score == exercise.points, verdict.first_fault
