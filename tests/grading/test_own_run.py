"""A run that travels from the judge to the notebook: nothing is lost, and it does not grow without end."""

import pytest

from dtlearn.grading.own_run import MOST_EVENTS, OwnRun, shortened
from dtlearn.runtime.record.record import Record
from tests.viz.records import event


def record(calls=3, unfinished=False):
    events = [
        event(rank, seq, "all_reduce", seq, None if unfinished and seq == calls - 1 else seq + 1)
        for rank in range(2)
        for seq in range(calls)
    ]
    return Record(2, tuple(events), "graded run", incomplete="the record of rank 1 is incomplete: cut")


@pytest.mark.parametrize("model", [None, record(calls=1)])
def test_what_is_sent_is_what_comes(model):
    run = OwnRun("short", 2, "DTL-VALUE", record(), model)
    assert OwnRun.from_json(run.to_json()) == run


def test_a_short_record_is_left_alone():
    assert shortened(record()) == record()


@pytest.mark.parametrize(("unfinished", "first"), [(False, 0), (True, 50)])
def test_of_a_long_record_the_part_that_matters_is_kept(unfinished, first):
    kept = shortened(record(MOST_EVENTS // 2 + 50, unfinished))
    assert len(kept) == MOST_EVENTS
    assert min(e.seq for e in kept) == first and {e.rank for e in kept} == {0, 1}
    assert ("the last 200 calls" if unfinished else "the first 200 calls") in kept.label
