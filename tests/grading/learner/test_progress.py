import pytest

from dtlearn.grading.learner import attempts
from dtlearn.grading.learner.progress import board, rows
from dtlearn.grading.verdict import Verdict
from tests.grading.small_course import ID, RIGHT, small_course


@pytest.fixture
def course(tmp_path):
    return small_course(tmp_path)


def attempt(course, state, score, tier=""):
    folder = attempts.attempts_folder(course.root, ID)
    number, _ = attempts.begin(folder, f"{state} {score}")
    attempts.finish(folder, Verdict(ID, "T", state, score, 4, tier, attempt=number))


def row(course):
    (found,) = rows(course)
    return found


def test_from_the_beginning_to_the_best(course):
    assert row(course).standing == "not started"
    (course.root / "exercises/ch01_small/average.py").write_text(RIGHT)
    attempts.note_hints(attempts.attempts_folder(course.root, ID), 2)
    assert (row(course).standing, row(course).hints) == ("started", 2)
    attempt(course, "failed", 2)
    assert (row(course).standing, row(course).score, row(course).attempts) == ("not passed yet", 2, 1)
    attempt(course, "passed", 4, "good")
    attempt(course, "failed", 3)
    found = row(course)
    assert (found.standing, found.score, found.tier, found.attempts, found.at_first) == ("passed", 4, "good", 3, False)
    text = str(board([found]))
    assert text.startswith("1 of 1 exercises passed, 4 of 4 points\n")
    assert "The mean over the ranks  passed  4 of 4  good  3" in text
    assert "passed" in board([found])._repr_html_()


def test_a_first_attempt_that_passes_is_told(course):
    attempt(course, "passed", 4)
    assert "1 (at once)" in str(board(rows(course)))


def test_without_reading_it_is_a_beginner_s(course):
    attempt(course, "passed", 4)
    assert rows(course, read=False)[0].standing == "not started"


def test_a_missing_file_is_not_started(course):
    (course.root / "exercises/ch01_small/average.py").unlink()
    assert row(course).standing == "not started"
