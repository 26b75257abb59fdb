import pytest

from dtlearn.pipeline_parallel import Schedule, late_weights, make_schedule, simulate
from tests.pipeline_parallel.grids import grid


def test_h1_fills_most_of_the_idle_time_with_weights():
    assert (
        grid("zb_h1", 3, 4)
        == """
0F0 0F1 0F2 .   .   0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3
.   1F0 1F1 .   1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3
.   .   2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3
"""
    )


def test_h2_has_no_idle_time_between_a_rank_s_first_and_last_action():
    assert (
        grid("zb_h2", 3, 5)
        == """
0F0 0F1 0F2 0F3 0F4 0I0 0W0 0I1 0W1 0I2 0W2 0I3 0W3 0I4 0W4 .   .
.   1F0 1F1 1F2 1I0 1F3 1I1 1F4 1I2 1W0 1I3 1W1 1I4 1W2 1W3 1W4 .
.   .   2F0 2I0 2F1 2I1 2F2 2I2 2F3 2I3 2F4 2I4 2W0 2W1 2W2 2W3 2W4
"""
    )


def test_without_delay_it_is_1f1b_with_b_in_two_parts():
    """The same memory, and idle time between that of 1F1B and of H1: splitting alone gives half of the gain."""
    orders = tuple(tuple(late_weights(rank, 3 - rank, 0, 8)) for rank in range(4))
    plain = make_schedule("1f1b", 4, 8)
    assert [[a for a in order if a.op == "F"] for order in orders] == [
        [a for a in order if a.op == "F"] for order in plain.orders
    ]
    timeline = simulate(Schedule("mine", 8, plain.placement, orders))
    assert timeline.peak_live == simulate(plain).peak_live
    assert [simulate(plain).idle[0], timeline.idle[0], simulate(make_schedule("zb_h1", 4, 8)).idle[0]] == [9, 6, 3]


@pytest.mark.parametrize(("warmup", "delay"), [(0, 0), (3, 0), (0, 3), (2, 2), (9, 1)])
def test_memory_is_the_warm_up_and_the_delay(warmup, delay):
    schedule = Schedule("mine", 8, (0,), (tuple(late_weights(0, warmup, delay, 8)),))
    assert simulate(schedule).peak_live == (min(8, warmup + delay + 1),)
