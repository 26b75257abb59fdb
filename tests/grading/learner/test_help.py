"""Hints, worked answers, beginning anew; what a terminal says of them: `tests/cli/exercises/test_one_exercise.py`."""

import pytest

from dtlearn.grading.learner import attempts
from dtlearn.grading.learner.help import begin_anew, hint_lines, worked_answer
from tests.grading.small_course import ID, RIGHT, STUB, answer_file, small_course


@pytest.fixture
def course(tmp_path):
    return small_course(tmp_path)


def test_hints_come_one_by_one_and_nobodys_are_not_counted(course):
    exercise = course.exercise(ID)
    assert hint_lines(course, exercise, "show", keep=False) == (["1 of 3: Sum first."], "")
    for number in (1, 2, 3):
        assert len(hint_lines(course, exercise, "show")[0]) == number
    lines, _ = hint_lines(course, exercise, "show")
    assert lines[3] == f"These are all. After an attempt, `show {ID}` shows a worked answer."
    assert hint_lines(course, exercise, "show", keep=False)[0] == ["1 of 3: Sum first."]


def test_there_is_no_worked_answer_before_an_attempt(course):
    exercise = course.exercise(ID)
    assert worked_answer(course, exercise) is None
    attempts.begin(attempts.attempts_folder(course.root, ID), "x = 1")  # never graded to its end
    assert worked_answer(course, exercise) is None


def test_what_is_begun_anew_is_kept(course):
    file = answer_file(course)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(RIGHT)
    assert "what it held is in .dtlearn/attempts" in begin_anew(course, course.exercise(ID))
    assert file.read_text() == STUB and begin_anew(course, course.exercise(ID)).endswith("is the stub already")
