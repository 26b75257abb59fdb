"""The folds below a verdict."""

import pytest

from dtlearn.grading.learner import attempts
from dtlearn.grading.verdict import Verdict
from dtlearn.notebook.exercises.help import folds, show_help
from tests.grading.small_course import ID, small_course


@pytest.fixture
def course(tmp_path):
    return small_course(tmp_path)


def attempt(course):
    folder = attempts.attempts_folder(course.root, ID)
    number, _ = attempts.begin(folder, "x = 1")
    attempts.finish(folder, Verdict(ID, "t", "failed", 0.0, 4.0, attempt=number))


def test_hints_open_one_after_the_other_and_are_remembered(course):
    fold, folder = folds(course, course.exercise(ID), passed=False), attempts.attempts_folder(course.root, ID)
    assert fold.titles == ("Hint 1 of 3", "Hint 2 of 3", "Hint 3 of 3", "A worked answer")
    assert fold.selected_index is None and all(page.value == "" for page in fold.children)
    fold.selected_index = 1
    assert fold.children[1].value == "Hint 1 comes first." and attempts.hints_taken(folder) == 0
    for number in (0, 1):
        fold.selected_index = number
    assert fold.children[1].value == "Then divide." and attempts.hints_taken(folder) == 2
    fold.selected_index = None
    fold.selected_index = 0
    assert fold.children[0].value == "Sum first." and attempts.hints_taken(folder) == 2


def test_a_hint_is_shown_where_nothing_can_be_written(course):
    (course.root / ".dtlearn").write_text("in the way")
    fold = folds(course, course.exercise(ID), passed=False)
    fold.selected_index = 0
    assert fold.children[0].value.startswith("Sum first.<br>This is not remembered")


def test_a_worked_answer_comes_after_an_attempt(course):
    fold = folds(course, course.exercise(ID), passed=True)
    assert fold.titles == ("A worked answer",)
    fold.selected_index = 0
    assert "was not attempted yet" in fold.children[0].value
    attempt(course)
    fold.selected_index = None
    fold.selected_index = 0
    page = fold.children[0].value
    assert "solutions/ch01_small/average.py" in page and "all_reduce" in page and "BEGIN SOLUTION" not in page


def test_a_course_without_solutions_says_so(course):
    (course.root / "solutions" / "ch01_small" / "average.py").unlink()
    attempt(course)
    fold = folds(course, course.exercise(ID), passed=True)
    fold.selected_index = 0
    assert "solutions/ch01_small/average.py" in fold.children[0].value


def test_below_the_folds_stands_how_to_begin_anew(course, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: shown.append(data))
    show_help(course, course.exercise(ID), passed=False)
    fold, below = shown[0].inside.children
    assert len(fold.children) == 4 and f"%reset_exercise {ID}" in below.value and "%progress" in below.value
    assert shown[1]["text/plain"].endswith("Run this cell for hints and a worked answer.")
