"""The simulator: by hand, FIFO by its formula, the limits of credit, and no order below the bound."""

import itertools
from functools import partial
from operator import add
from random import Random

import pytest

from dtlearn.communication_scheduling.policy import DDP_LIKE, SchedulingPolicy
from dtlearn.communication_scheduling.simulate import (
    LaneSpan,
    LayerTimes,
    busier_seconds,
    lower_bound,
    simulate_step,
)

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
    assert lower_bound(TIMES, lambda _: 0.0) == busier_seconds(TIMES, lambda _: 0.0) == TIMES.compute


def test_the_bound_by_hand():
    # The rank alone: 9. The link, by layer 0: 6 + 4 + 3; by 0 and 1: 4 + 8 + 2; by all: 2 + 12 + 1.
    assert lower_bound(TIMES, seconds) == 15 and busier_seconds(TIMES, seconds) == 12
    assert lower_bound(LayerTimes((1, 5, 1), (1, 5, 1), (1, 8, 0)), seconds) == 6 + 9 + 6  # nothing of layer 2 is sent
    assert lower_bound(LayerTimes((1, 9), (1, 9), (4, 1)), seconds) == 10 + 4 + 10  # layer 0 alone
    frozen = LayerTimes((1, 2), (3, 4), (0, 0))
    assert lower_bound(frozen, lambda n: n + 1.0) == busier_seconds(frozen, lambda n: n + 1.0) == frozen.compute


def best_order(times, cost):
    """The makespan of the best one of all orders of whole layers, each sent when it is its turn and it is there."""
    sent = [i for i, nbytes in enumerate(times.nbytes) if nbytes]
    ready = [sum(times.backward[i:]) for i in range(len(times.nbytes))]
    found = []
    for order in itertools.permutations(sent):
        free, end = 0.0, times.compute
        for i in order:
            free = max(free, ready[i]) + cost(times.nbytes[i])
            end = max(end, free + sum(times.forward[i:]))
        found.append(end)
    return min(found)


def test_the_bound_is_below_every_order_and_equal_to_the_best_in_most_small_cases():
    random, equal = Random(0), 0
    for number in range(300):
        fields = [tuple(random.randint(0, 6) for _ in range(4)) for _ in range(3)]
        times, latency = LayerTimes(*fields), number % 3
        cost = partial(add, latency)
        bound, best = lower_bound(times, cost), best_order(times, cost)
        simulated = simulate_step(times, WHOLE_FIRST, cost)
        assert busier_seconds(times, cost) <= bound <= best <= simulated.makespan
        equal += bound == best
    assert equal > 150


def test_priority_in_small_partitions_comes_to_the_bound():
    random = Random(0)
    for _ in range(100):
        fields = [tuple(random.randint(0, 6) for _ in range(5)) for _ in range(3)]
        times = LayerTimes(fields[0], fields[1], tuple(64 * n for n in fields[2]))
        step = simulate_step(times, SchedulingPolicy("priority", 1, 1), lambda n: n / 64, itemsize=1)
        assert 0 <= step.makespan - lower_bound(times, lambda n: n / 64) <= 1 / 64


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
