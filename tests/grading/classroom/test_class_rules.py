"""Due dates, lateness, several hand-ins of a student, names of columns."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from dtlearn.grading.classroom.class_rules import Rules, read_rules, settle
from dtlearn.grading.classroom.submissions import Submission
from dtlearn.grading.verdict import Verdict

TEXT = """
resubmissions = "best"
[late]
per_day = 0.1
days = 3
grace_minutes = 15
[due]
ch01 = 2026-11-20T23:59:00+01:00
[extensions.ada]
"ch01.mean" = 2026-11-27T23:59:00+01:00
[canvas]
"ch01.mean" = "The mean (48151)"
[nbgrader]
"ch01.mean" = "ps1"
"""
DUE = datetime.fromisoformat("2026-11-20T23:59:00+01:00")
RULES = read_rules(TEXT, ["ch01.mean", "ch01.total"])


def graded(score=4.0, state="passed", exercise="ch01.mean"):
    return Verdict(exercise, "Mean", state, score, 4.0)


def handed_in(late, student="bob", entry=""):
    return Submission(student, handed_in=DUE + late, entry=entry or student)


def test_the_file():
    assert (RULES.best, RULES.canvas, RULES.nbgrader) == (
        *(True, {"ch01.mean": "The mean (48151)"}),
        {"ch01.mean": "ps1"},
    )
    bob, ada = handed_in(timedelta()), handed_in(timedelta(), "ada/ada.zip")
    assert RULES.due_of(bob, "ch01.mean") == RULES.due_of(ada, "ch01.total") == DUE
    assert RULES.due_of(ada, "ch01.mean") == DUE + timedelta(days=7)
    assert RULES.due_of(bob, "ch02.other") is None


@pytest.mark.parametrize(
    ("late", "off", "words"),
    [
        (timedelta(days=-1), 0.0, ""),
        (timedelta(minutes=15), 0.0, ""),
        (timedelta(minutes=16), 0.4, "on day 1 after it was due: 0.4 of 4 points off"),
        (timedelta(days=1, seconds=1), 0.8, "on day 2"),
        (timedelta(days=3), 1.2, "on day 3"),
        (timedelta(days=3, seconds=1), 4.0, "day 4 after it was due, which is too late: 4 of 4 points off"),
    ],
)
def test_lateness(late, off, words):
    points, notes = RULES.penalty(handed_in(late), graded())
    assert points == off and words in " ".join(notes)


def test_nothing_is_late_without_a_date_and_no_score_falls_below_zero():
    assert Rules().penalty(handed_in(timedelta(days=99)), graded()) == (0.0, ())
    assert RULES.penalty(replace(handed_in(timedelta()), handed_in=None), graded()) == (0.0, ())
    assert RULES.penalty(handed_in(timedelta(days=2)), graded(0.1))[0] == 0.1
    assert RULES.penalty(handed_in(timedelta(days=2)), graded(0.0)) == (0.0, ())


def test_the_newest_hand_in_of_a_student_counts_and_that_is_said():
    old, new = handed_in(timedelta(days=-2), "bob", "bob"), handed_in(timedelta(days=-1), "bob2", "bob2.zip")
    ann = handed_in(timedelta(), "ann")
    kept, said = Rules().to_grade([ann, old, new], lambda name: name[:3])
    assert [s.entry for s in kept] == ["ann", "bob2.zip"]
    assert said == ["hand-ins of one student: bob2.zip is the newest; not graded: bob"]
    kept, said = RULES.to_grade([old, new], lambda name: name[:3])
    assert [s.student for s in kept] == ["bob2", "bob2/bob"] and "the best counts" in said[0]


def test_the_best_counts_after_lateness_exercise_by_exercise():
    new, old = handed_in(timedelta(days=2)), handed_in(timedelta(), "bob/bob.zip")
    verdicts = {
        "bob": [graded(4.0), graded(4.0, exercise="ch01.total")],
        "bob/bob.zip": [graded(3.5), graded(1.0, "failed", "ch01.total")],
    }
    counts, off, times = settle(RULES, [new, old], verdicts)
    assert [(v.exercise, v.score) for v in counts["bob"]] == [("ch01.mean", 3.5), ("ch01.total", 3.2)]
    assert off == {("bob", "ch01.mean"): 0.0, ("bob", "ch01.total"): 0.8}
    assert "0.8 of 4 points off" in counts["bob"][1].notes[0]
    assert times == {"bob": new.handed_in}


@pytest.mark.parametrize("order", [1, -1])
def test_what_is_not_graded_yet_may_be_the_best(order):
    several = [handed_in(timedelta()), handed_in(timedelta(), "bob/old")][::order]
    verdicts = {"bob": [graded(4.0)], "bob/old": [graded(0.0, "error")]}
    assert not settle(RULES, several, verdicts)[0]["bob"][0].final


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("due = [", "the rules: "),
        ("[dues]", "'dues' is unknown"),
        ("[due]\nch09 = 2026-11-20T23:59:00Z", "'ch09' is unknown"),
        ("[canvas]\nmean = 'x'", "'mean' is unknown"),
        ("[due]\nch01 = 2026-11-20T23:59:00", "time and zone"),
        ("[due]\nch01 = 2026-11-20", "time and zone"),
        ("[extensions.ada]\nch01 = 'tomorrow'", "time and zone"),
        ("[late]\nper_day = -1", "numbers from 0 to 1,000,000"),
        ("[late]\nper_day = true", "numbers from 0"),
        ("[late]\nper_day = nan", "numbers from 0"),
        ("[late]\ngrace_minutes = 1e300", "numbers from 0"),
        ("[late]\nper_week = 1", "'per_week' is unknown"),
        ("[late]\ndays = 'three'", "numbers from 0"),
        ("late = 3", r"the rules: late is a table: a line \[late\], and below it lines such as NAME = VALUE"),
        ("extensions = 3", "extensions is a table"),
        ("[extensions]\nada = 5", r"extensions.ada is a table: a line \[extensions.ada\]"),
        ("[canvas]\n'ch01.mean' = 5", "the column of 'ch01.mean' is a text"),
        ("[nbgrader]\n'ch01.mean' = ['ps1']", "the column of 'ch01.mean' is a text"),
        ("resubmissions = 'first'", "latest"),
    ],
)
def test_faults_are_named(text, words):
    with pytest.raises(ValueError, match=words):
        read_rules(text, ["ch01.mean"])
