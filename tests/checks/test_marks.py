"""The marks of a run, cut into steps; those that `on_rank` cannot have sent are refused."""

import pytest

from dtlearn.checks.marks import steps_of
from dtlearn.grading import Finding
from dtlearn.runtime.record.event import Mark
from dtlearn.runtime.record.record import Record


def marked(*labels: str) -> Record:
    """Each text: the labels of a rank."""
    marks = [
        Mark(rank, label, 10 * k, 10 * k + 1, 0)
        for rank, text in enumerate(labels)
        for k, label in enumerate(text.split())
    ]
    return Record(len(labels), marks=tuple(marks))


def test_marks_are_cut_where_a_step_begins():
    steps = steps_of(marked("begin 1 0 done begin done", ""), r"begin( \d+)* done", [2, 0])
    assert [[[mark.label for mark in step] for step in of_rank] for of_rank in steps] == [
        [["begin", "1", "0", "done"], ["begin", "done"]],
        [],
    ]


@pytest.mark.parametrize(
    "labels",
    [
        "begin done",
        "begin done begin",
        "begin begin done done",
        "begin done begin done begin done",
        "1 begin done begin done",
        "",
    ],
)
def test_other_marks_than_those_of_the_check_are_refused(labels):
    found = steps_of(marked("begin done begin done", labels), "begin done", [2, 2])
    assert isinstance(found, Finding) and (found.code, found.rank) == ("DTL-TAMPERED", 1)
