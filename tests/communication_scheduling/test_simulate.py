"""The simulator: by hand, FIFO by its formula, the limits of credit, and no order below the bound."""

import itertools

import pytest

from dtlearn.communication_scheduling.policy import DDP_LIKE, SchedulingPolicy
from dtlearn.communication_scheduling.simulate import LaneSpan, LayerTimes, lower_bound, simulate_step

TIMES = LayerTimes((1.0, 1.0, 1.0), (2.0, 2.0, 2.0), (4, 4, 4))
WHOLE_FIRST = SchedulingPolicy(credit_bytes=1)


def seconds(nbytes):
    return float(nbytes)


def places(step):
    return [(p.layer, p.number) for p in step.order]


def test_priority_by_hand():
    # Backward ends with layer 2 at 2, 1 at 4, 0 at 6. Layer 2 leaves at 2, and when it is there, at 6, 0 overtakes 1.
    step = simulate_step(TIMES, WHOLE_FIRST, seconds)
    assert places(step) == [(2, 0), (0, 0), (1, 0)]
    assert [(s.launched, s.start, s.end) for s in step.sends] == [(2, 2, 6), (6, 6, 10), (10, 10, 14)]
    assert step.computed[-3:] == (
        LaneSpan("forward", 0, 10, 11),
        LaneSpan("forward", 1, 14, 15),
        LaneSpan("forward", 2, 15, 16),
    )
    assert step.makespan == 16 and step.waiting == 7


def test_partitions_let_the_urgent_pass():
    step = simulate_step(TIMES, SchedulingPolicy("priority", 1, 1), seconds, itemsize=1)
    assert places(step)[:4] == [(2, 0), (2, 1), (1, 0), (1, 1)] and places(step)[4:8] == [(0, n) for n in range(4)]
    assert step.makespan == 14 + 1  # layer 0 is there at 10, 1 at 12, 2 at 14


def test_fifo_is_backward_and_exposed_communication_and_forward():
    step = simulate_step(TIMES, DDP_LIKE, seconds)
    exposed = 14 - 6  # the last of three transfers ends at 2 + 3 * 4, backward at 6
    assert step.makespan == 6 + exposed + 3
    assert simulate_step(TIMES, SchedulingPolicy("fifo"), seconds).makespan == step.makespan  # layer 0 comes last


def test_credit_of_one_serialises():
    step = simulate_step(TIMES, SchedulingPolicy("priority", 1, 1), seconds, itemsize=1)
    assert all(later.launched >= earlier.end for earlier, later in itertools.pairwise(step.sends))


def test_without_a_limit_priority_is_fifo():
    orders = [simulate_step(TIMES, SchedulingPolicy(order, 1), seconds, itemsize=1) for order in ("fifo", "priority")]
    assert orders[0].sends[:4] == orders[1].sends[:4]  # of layer 2, all launched at 2
    assert [places(o) == sorted(places(o), key=lambda p: (-p[0], p[1])) for o in orders] == [True, True]


def test_the_last_one_may_go_beyond_the_credit():
    step = simulate_step(TIMES, SchedulingPolicy("priority", 1, 2), seconds, itemsize=1)
    launched = [s.launched for s in step.sends[:4]]
    assert launched == [2, 2, 3, 4]  # two at once; then one for each that has arrived


@pytest.mark.parametrize(
    ("order", "partition", "credit"), list(itertools.product(("fifo", "priority"), (1, 2, None), (1, 3, None)))
)
def test_no_policy_is_below_the_bound(order, partition, credit):
    for times in (TIMES, LayerTimes((1, 2, 0.5, 3), (2, 1, 4, 1), (1, 9, 0, 3))):
        policy = SchedulingPolicy(order, partition, credit)
        step = simulate_step(times, policy, seconds, itemsize=1)
        assert step.makespan >= lower_bound(times, seconds)
        assert step.makespan == pytest.approx(times.compute + step.waiting)
        assert sum(p.nbytes for p in step.order) == sum(times.nbytes) and len(set(step.order)) == len(step.order)


def test_a_transfer_that_costs_nothing_leaves_the_computation():
    assert simulate_step(TIMES, WHOLE_FIRST, lambda _: 0.0).makespan == TIMES.compute
    assert lower_bound(TIMES, lambda _: 0.0) == TIMES.compute and lower_bound(TIMES, lambda n: 9.0 * n) == 108


def test_latency_makes_small_partitions_lose():
    def with_latency(nbytes):
        return 1.0 + nbytes

    whole, small = (simulate_step(TIMES, SchedulingPolicy("priority", p, 1), with_latency, 1) for p in (None, 1))
    assert small.makespan > whole.makespan


@pytest.mark.parametrize(
    ("fields", "words"),
    [(((1.0,), (1.0,), (1, 2)), "got 1, 1 and 2"), (((), (), ()), "got 0"), (((1.0,), (-1.0,), (1,)), "negative")],
)
def test_times_that_no_model_has_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        LayerTimes(*fields)
