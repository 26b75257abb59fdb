import pytest

from dtlearn.pipeline_parallel import Action, make_schedule, parse_schedule
from dtlearn.pipeline_parallel.checking.needs import follow_orders, needs, result


@pytest.mark.parametrize(
    ("action", "needed"),
    [
        ("0F3", ""),
        ("2F3", "1F3"),
        ("3B0", "3F0"),  # of four stages the last: its gradient comes from the loss
        ("2B0", "2F0 3I0"),
        ("2I0", "2F0 3I0"),
        ("2W0", "2I0"),
    ],
)
def test_what_an_action_waits_for(action, needed):
    assert needs(Action.parse(action), 4) == tuple(map(Action.parse, needed.split()))


def test_b_gives_what_i_gives():
    assert result(Action.parse("1B2")) == result(Action.parse("1I2")) == Action.parse("1I2")
    assert result(Action.parse("1W2")) == Action.parse("1W2") and result(Action.parse("1F2")) == Action.parse("1F2")


def test_everything_is_done_after_what_it_needs():
    schedule = make_schedule("interleaved", 3, 6)
    progress, results = follow_orders(schedule), set()
    for _, action in progress.done:
        assert results.issuperset(needs(action, schedule.num_stages))
        results.add(result(action))
    assert progress.reached == [24, 24, 24]


def test_ranks_that_wait_for_each_other_stop():
    progress = follow_orders(parse_schedule("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1"))
    assert progress.reached == [1, 1]
    assert {f"{rank}: {action}" for rank, action in progress.done} == {"0: 0F0", "1: 1F0"}
