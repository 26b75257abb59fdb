"""`dtlearn progress`: it fits the terminal, sums chapters up, and says what is next."""

import json

import pytest

from dtlearn import cli
from dtlearn.cli.exercises.progress import board_lines
from dtlearn.course import load_course
from dtlearn.grading.learner.progress import ExerciseRow, rows

COURSE = load_course()


def test_the_board_is_printed(course, capsys):
    assert cli.main(["progress"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "0 of 1 exercises passed, 0 of 4 points",
        "next: ch01.average, in `dtlearn lab ch01`",
        "",
        "ch01  Small: 0 of 1 passed, 0 of 4 points",
        "ch01.average  not started  0 of 4  The mean over the ranks",
    ]


def far_on():
    """The whole course: chapter 1 is passed, one exercise of chapter 2 is begun."""
    made = []
    for row in rows(COURSE, read=False):
        if row.exercise.id.startswith("ch01."):
            row = ExerciseRow(row.exercise, "passed", row.exercise.points, "optimal", 12, False, 3)
        made.append(row)
    made[8] = ExerciseRow(made[8].exercise, "not passed yet", 0.5, "", 1, False, 1)
    return made


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_it_fits_the_terminal_and_says_more_where_there_is_room(width):
    lines = board_lines(COURSE, far_on(), width)
    of_exercises = [line for line in lines if line.startswith("ch") and "." in line[:5]]
    assert len(of_exercises) == len(rows(COURSE, read=False)) and max(map(len, of_exercises)) <= width
    assert ("12 attempts" in of_exercises[0]) == (width >= 80)
    assert (of_exercises[0].endswith(COURSE.exercise("ch01.who_am_i").title)) == (width == 200)


def test_chapters_have_sums_and_what_is_next_is_named():
    lines = board_lines(COURSE, far_on(), 80)
    chapter = COURSE.chapter("ch01")
    points = sum(exercise.points for exercise in chapter.exercises)
    assert f"ch01  {chapter.title}: 8 of 8 passed, {points} of {points} points" in lines
    assert lines[1] == f"next: {COURSE.chapter('ch02').exercises[0].id}, in `dtlearn lab ch02`"
    passed = [row for row in far_on() if row.standing == "passed"]
    assert not any(line.startswith("next") for line in board_lines(COURSE, passed, 80))


def test_colour_changes_no_letter():
    plain, painted = (board_lines(COURSE, far_on(), 80, colour) for colour in (False, True))
    strip = {code: "" for code in ("\x1b[0m", "\x1b[1m", "\x1b[32m", "\x1b[33m", "\x1b[36m")}
    text = "\n".join(painted)
    assert "\x1b[32mpassed" in text and "\x1b[33mnot passed yet" in text
    for code in strip:
        text = text.replace(code, "")
    assert text.splitlines() == plain


def test_a_chapter_or_an_exercise_alone_and_json(course, capsys):
    assert cli.main(["progress", "ch01", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["next"] == "ch01.average"
    assert said["exercises"] == [
        {
            **{"id": "ch01.average", "points": 4, "standing": "not started", "score": 0.0, "tier": ""},
            **{"attempts": 0, "at_first": False, "hints": 0},
        }
    ]
    assert cli.main(["progress", "ch07"]) == cli.USAGE
    assert "there is no chapter 'ch07'" in capsys.readouterr().err
