import pytest

from dtlearn.runtime.record.event import Span
from dtlearn.runtime.record.record import merge
from dtlearn.viz.pipeline.bars import Bar, idle, recorded_bars, stages_by_rank
from tests.viz.pipeline.runs import GPIPE, MS, recorded


def test_a_recorded_step_is_the_bars_that_it_was_made_of_in_ms_from_its_begin():
    assert sorted(recorded_bars(recorded(1))) == sorted(GPIPE)


def test_of_several_steps_the_shortest_is_drawn_or_the_one_that_is_asked_for():
    record = recorded(3, 1, 2)
    assert max(bar.end for bar in recorded_bars(record)) == 9
    assert max(bar.end for bar in recorded_bars(record, step=2)) == 18


def test_a_step_that_was_cut_off_is_not_the_shortest():
    record = recorded(2, 1)
    whole = merge(2, [], "", record.spans[:-1])
    assert max(bar.end for bar in recorded_bars(whole)) == 18


def test_records_without_a_whole_step_are_refused():
    with pytest.raises(ValueError, match='named like "2F0"'):
        recorded_bars(merge(1, [], "", [Span(0, "forward", 0, MS)]))
    with pytest.raises(ValueError, match="rank 1 never ended 1B0"):
        recorded_bars(merge(2, [], "", [Span(1, "1B0", 0, None)]))
    with pytest.raises(ValueError, match="has 1 steps, numbered from 0; got step 1"):
        recorded_bars(recorded(1), step=1)


def test_the_bubble_in_both_conventions():
    spare = idle(GPIPE)
    assert (spare.makespan, spare.busy, spare.num_ranks) == (9, 12, 2)
    p, m = 2, 2
    assert spare.of_useful == pytest.approx((p - 1) / m)
    assert spare.of_total == pytest.approx((p - 1) / (m + p - 1))
    assert idle([]).of_useful == idle([]).of_total == 0


def test_stages_of_each_rank():
    assert stages_by_rank([*GPIPE, Bar(0, 2, "F", 0, 9, 10)]) == {0: [0, 2], 1: [1]}
