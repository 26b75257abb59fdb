"""A learner's run in pictures and words, from records that are made here."""

from dataclasses import replace

import pytest

from dtlearn.grading.own_run import OwnRun
from dtlearn.grading.report.own_run import (
    calls,
    comparison,
    html,
    messages_picture,
    moves_data,
    parting,
    picture,
    text,
    waits,
)
from dtlearn.runtime.record.record import Record
from tests.viz.records import event


def run(*events, size=2, model=None, code="DTL-VALUE"):
    return OwnRun("short", size, code, Record(size, tuple(events), "graded run"), model)


EQUAL = run(event(0, 0, "all_reduce", 0, 9), event(1, 0, "all_reduce", 4, 9))
PARTED = run(
    event(0, 0, "all_reduce", 0, 1),
    event(1, 0, "all_reduce", 0, 1),
    event(0, 1, "all_reduce", 2, None, group_seq=1),
    event(1, 1, "barrier", 2, None, group_seq=1),
)
ALONE = run(
    event(0, 0, "all_reduce", 0, 1),
    event(1, 0, "all_reduce", 0, 1),
    event(0, 1, "barrier", 2, None, group_seq=1),
)
SENT = run(
    event(0, 0, "send", 0, 5, peer=1),
    event(1, 0, "recv", 2, 5, peer=0),
)


def test_who_waited_longest_and_for_whom_is_said():
    assert (
        waits(EQUAL.record)
        == f"Rank 0 waited longest: 4.0 ms for rank 1 in all_reduce, line {EQUAL.record.events[0].line}."
    )
    late = run(event(0, 0, "send", 7, 9, peer=1), event(1, 0, "recv", 2, 9, peer=0))
    assert waits(late.record).startswith("Rank 1 waited longest: 5.0 ms for rank 0 in recv")
    root = run(*(event(r, 0, "broadcast", start, 9, peer=0) for r, start in enumerate((5, 0, 8))), size=3)
    assert waits(root.record).startswith("Rank 1 waited longest: 5.0 ms for rank 0 in broadcast")
    assert waits(run(event(0, 0, "all_reduce", 0, 1), size=1).record) == "No rank waited for another."


def test_calls_that_never_returned_are_said_instead():
    assert waits(PARTED.record).startswith("Rank 0 is still in all_reduce, line")
    assert "Rank 1 is still in barrier" in waits(PARTED.record) and "longest" not in waits(PARTED.record)


def test_the_first_call_in_which_the_ranks_part_is_marked():
    assert parting(EQUAL.record) == set()
    assert parting(PARTED.record) == {(0, 1), (1, 1)}
    assert parting(ALONE.record) == {(0, 1)}
    marked = [line for line in calls(PARTED).splitlines() if line.startswith(">")]
    assert len(marked) == 1 and "all_reduce" in marked[0] and "barrier" in marked[0]
    labels = [t.get_text() for t in picture(PARTED).figure.legends[0].get_texts()]
    assert any("here the ranks part" in label for label in labels)
    assert not any("here the ranks part" in t.get_text() for t in picture(EQUAL).figure.legends[0].get_texts())


def test_where_the_watch_sees_no_fault_no_rank_parts():
    refused = replace(event(0, 0, "all_reduce", 0, None), detail={"raised": "TypeError"})
    fine = run(refused, event(0, 1, "all_reduce", 2, 9), event(1, 0, "all_reduce", 5, 9))
    assert parting(fine.record) == set()
    assert waits(fine.record).startswith("Rank 0 waited longest: 3.0 ms for rank 1 in all_reduce")


def test_ranks_that_had_ended_are_named_in_their_lane():
    words = [t.get_text() for t in picture(ALONE).figure.axes[0].texts]
    assert "ended" in words and any("never returned" in w for w in words)


def test_messages_stand_side_by_side():
    lines = calls(SENT).splitlines()
    assert lines[0].split() == ["messages", "rank", "0", "rank", "1"]
    assert "send to 1  1,000 B  line" in lines[1] and "recv from 0  1,000 B  line" in lines[1]


def test_many_messages_of_many_ranks_are_cut_and_it_is_said():
    many = [event(r, k, "send", k, k + 1, peer=(r + 1) % 6, group_seq=k) for r in range(6) for k in range(20)]
    assert calls(run(*many, size=6)).splitlines()[-1] == "  (the first 4 ranks, 12 of 20 calls)"


def test_data_that_moved_is_drawn_step_by_step_and_other_calls_are_not():
    assert moves_data(SENT.record) and messages_picture(SENT) is not None
    assert not moves_data(EQUAL.record) and messages_picture(EQUAL) is None
    hung = run(event(0, 0, "send", 0, None, peer=1))
    assert not moves_data(hung.record) and messages_picture(hung) is None


def test_after_a_pass_both_answers_are_counted():
    assert comparison(EQUAL) is None
    table = comparison(run(*SENT.record.events, *[], model=SENT.record, code=""))
    assert [row[0] for row in table.rows] == ["yours", "model answer"]
    assert table.rows[0][1:] == table.rows[1][1:] == ("1", "1,000", "1")


@pytest.mark.parametrize("one", [EQUAL, PARTED, ALONE, SENT])
def test_all_of_it_is_folded_and_described(one):
    page = html(one)
    assert page.startswith("<details><summary>Your run with 2 ranks (short), drawn from its record</summary>")
    assert (
        page.count("<img alt=") == (2 if one is SENT else 1) and "<pre style=" in page and "<details open" not in page
    )
    assert text(one).startswith("Your run with 2 ranks (short):\n") and waits(one.record) in text(one)
