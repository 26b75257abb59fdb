import pytest

from dtlearn.pipeline_parallel import Action, Op, Schedule, parse_schedule


def test_ranks_stages_and_the_split_are_read_off():
    schedule = parse_schedule("0F0 3F0 3B0 0B0\n1F0 2F0 2I0 1B0 2W0")
    assert (schedule.num_ranks, schedule.num_stages, schedule.num_microbatches) == (2, 4, 1)
    assert schedule.placement == (0, 1, 1, 0)
    assert [schedule.stages_of(rank) for rank in (0, 1)] == [(0, 3), (1, 2)]
    assert schedule.splits_backward
    assert list(schedule.actions())[-1] == (1, 4, Action(2, Op.W, 0))
    assert not parse_schedule("0F0 0B0").splits_backward


@pytest.mark.parametrize(
    ("placement", "orders", "num_microbatches", "message"),
    [
        ((0,), (), 1, "got 0 ranks, 1 stages"),
        ((), ((),), 1, "got 1 ranks, 0 stages"),
        ((0,), ((),), 0, "0 micro-batches"),
        ((0, 2), ((), ()), 1, "stage 1 is on rank 2, and there are 2 ranks"),
        ((0, -1), ((), ()), 1, "stage 1 is on rank -1"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused(placement, orders, num_microbatches, message):
    with pytest.raises(ValueError, match=message):
        Schedule("mine", num_microbatches, placement, orders)
