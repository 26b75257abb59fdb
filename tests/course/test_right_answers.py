"""Right answers of another kind than the solution: they pass, without a remark.

`make test` takes one of each exercise, `make test-all` every one.
"""

from pathlib import Path

import pytest

from dtlearn.course import load_course
from dtlearn.grading.judging.grade import Answer, grade
from dtlearn.grading.learner.exercise_files import files_of, find_check

COURSE = load_course()
FOLDER = Path(__file__).parent / "right"
EXERCISES = {(chapter.slug, exercise.name): exercise for chapter in COURSE.chapters for exercise in chapter.exercises}
RIGHT = sorted(FOLDER.glob("*/*/*.py"))
FIRST = {path.parent: path for path in reversed(RIGHT)}.values()  # of each exercise


def all_right_answers():
    """As parameters of a test; all but the first of each exercise are marked `every_answer`."""
    for path in RIGHT:
        marks = [] if path in FIRST else [pytest.mark.every_answer]
        yield pytest.param(path, id="-".join(path.relative_to(FOLDER).with_suffix("").parts), marks=marks)


@pytest.mark.parametrize("path", list(all_right_answers()))
def test_a_right_answer_of_another_kind_passes(path: Path):
    exercise = EXERCISES[path.parent.parent.name, path.parent.name]
    stub = files_of(COURSE, exercise).stub.relative_to(COURSE.root).as_posix()
    answer = Answer(path.read_text("utf-8"), stub, exercise.name)
    verdict = grade(exercise, find_check(COURSE, exercise), answer, seed=1)
    assert verdict.passed and verdict.score == exercise.points, verdict.first_fault


def test_every_exercise_has_one_that_is_always_graded():
    always = [param.values[0].parent for param in all_right_answers() if not param.marks]
    assert sorted((folder.parent.name, folder.name) for folder in always) == sorted(EXERCISES)
