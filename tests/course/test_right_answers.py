"""Right answers of another kind than the solution: they pass, without a remark. `make test-all` grades them."""

from pathlib import Path

import pytest

from dtlearn.course import load_course
from dtlearn.grading.judging.grade import Answer, grade
from dtlearn.grading.learner.exercise_files import files_of, find_check

COURSE = load_course()
FOLDER = Path(__file__).parent / "right"
EXERCISES = {(chapter.slug, exercise.name): exercise for chapter in COURSE.chapters for exercise in chapter.exercises}
RIGHT = sorted(FOLDER.glob("*/*/*.py"))


def name_of(path: Path) -> str:
    return "-".join(path.relative_to(FOLDER).with_suffix("").parts)


@pytest.mark.every_answer
@pytest.mark.parametrize("path", RIGHT, ids=name_of)
def test_a_right_answer_of_another_kind_passes(path: Path):
    exercise = EXERCISES[path.parent.parent.name, path.parent.name]
    stub = files_of(COURSE, exercise).stub.relative_to(COURSE.root).as_posix()
    answer = Answer(path.read_text("utf-8"), stub, exercise.name)
    verdict = grade(exercise, find_check(COURSE, exercise), answer, seed=1)
    assert verdict.passed and verdict.score == exercise.points, verdict.first_fault


def test_every_exercise_has_one():
    assert {(path.parent.parent.name, path.parent.name) for path in RIGHT} == set(EXERCISES)
