"""The record: selecting, counting, its two ends, and which send went to which recv."""

from collections import Counter
from dataclasses import replace

import pytest

from dtlearn.runtime.record.event import Event, Span
from dtlearn.runtime.record.record import Record, merge


def event(rank=0, seq=0, op="all_reduce", group="world", nbytes=8, start=10, end=20, peer=None) -> Event:
    return Event(rank, seq, op, group, seq, nbytes, "float32", (2,), peer, {}, start, end, False, "a.py", 3)


RECORD = merge(
    2,
    [
        [event(1, 1, "send", "0,1", 4, 30, 45, peer=0), event(1, 0, start=5)],
        [event(0, 1, "recv", "0,1", 4, 25, None, peer=1), event(0, 0)],
    ],
    label="gloo on CPU",
)


def test_merged_events_are_ordered_by_rank_then_call():
    assert [(e.rank, e.seq) for e in RECORD] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len(RECORD) == 4


@pytest.mark.parametrize(
    ("which", "found"),
    [
        ({}, 4),
        ({"rank": 0}, 2),
        ({"op": "all_reduce"}, 2),
        ({"group": "0,1"}, 2),
        ({"rank": 1, "op": "send", "group": "0,1"}, 1),
        ({"rank": 1, "op": "recv"}, 0),
    ],
)
def test_select_keeps_what_fits_all_conditions(which, found):
    selected = RECORD.select(**which)
    assert len(selected) == found
    assert (selected.world_size, selected.label) == (2, "gloo on CPU")


def test_bytes_and_calls_are_counted():
    assert RECORD.nbytes() == 24
    assert RECORD.nbytes(rank=0, op="all_reduce") == 8
    assert RECORD.counts() == Counter({(0, "all_reduce"): 1, (0, "recv"): 1, (1, "all_reduce"): 1, (1, "send"): 1})


def test_a_call_that_never_returned_is_found():
    assert [(e.rank, e.op) for e in RECORD.unfinished()] == [(0, "recv")]
    assert RECORD.unfinished()[0].seconds is None
    assert RECORD.events[0].seconds == 10e-9


def test_the_span_counts_an_unfinished_call_to_its_start():
    assert RECORD.span_ns() == (5, 45)
    assert RECORD.select(op="recv").span_ns() == (25, 25)
    assert Record(2).span_ns() == (0, 0)


def test_point_to_point_and_collectives_are_told_apart():
    assert [e.is_p2p for e in RECORD] == [False, True, False, True]


def test_phases_are_selected():
    calls = [replace(event(0, 0), phase="backward"), event(0, 1), event(1, 0)]
    spans = [Span(1, "forward", 1, 4), Span(0, "backward", 7, None), Span(0, "forward", 2, 5)]
    record = replace(merge(2, [calls], spans=spans), incomplete="the record of rank 1 is incomplete: disk full")
    assert [(s.rank, s.phase) for s in record.spans] == [(0, "forward"), (0, "backward"), (1, "forward")]
    assert [e.seq for e in record.select(phase="backward")] == [0]
    assert [(e.rank, e.seq) for e in record.select(phase="")] == [(0, 1), (1, 0)]
    assert record.select(phase="forward", rank=1).spans == (Span(1, "forward", 1, 4),)


def test_messages_pair_by_sender_receiver_group_and_tag():
    def p2p(rank, seq, op, peer, group="world", **detail):
        return replace(event(rank, seq, op, group, peer=peer), detail=detail)

    record = merge(
        2,
        [
            [p2p(0, 0, "send", 1), p2p(0, 1, "isend", 1, tag=1), p2p(0, 2, "isend", 1, "0,1", group_id="b")],
            [
                p2p(1, 0, "irecv", 0, tag=1),
                p2p(1, 1, "recv", 0),
                p2p(1, 2, "irecv", 0, "0,1", group_id="a"),
                p2p(1, 3, "recv", None),
            ],
        ],
    )
    assert sorted((s.seq, r.seq) for s, r in record.messages()) == [(0, 1), (1, 0)]
