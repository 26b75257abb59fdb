"""The alpha-beta model: plans cost what the textbook says, and a cluster's levels make hierarchical win."""

import math
import operator
from functools import reduce

import pytest

from dtlearn.collectives import halving_doubling, hierarchical, naive, ring, tree
from dtlearn.collectives.cost import (
    BUS_FACTOR,
    algorithm_bandwidth,
    bus_bandwidth,
    crossover,
    fit,
    plan_line,
    plan_seconds,
    ring_all_reduce_seconds,
    step_seconds,
)
from dtlearn.collectives.topology import DGX_H100, flat, nodes
from tests.collectives.plans import all_plans

ALPHA, BETA = 5e-6, 12.5e9
FLAT = flat(ALPHA, BETA)


def test_a_plan_takes_the_sum_of_its_steps_also_where_some_are_alike():
    for _, plan in all_plans(6):
        chunk = 1e6 / (plan.num_ranks if plan.op == "all_to_all" else plan.num_chunks)
        steps = [step_seconds(step, chunk, DGX_H100) for step in plan.steps]
        # One after the other: since Python 3.12 `sum` rounds once only.
        assert plan_seconds(plan, 1e6, DGX_H100) == reduce(operator.add, steps, 0.0)


@pytest.mark.parametrize("N", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("n", [1e3, 1e9])
def test_closed_forms(N, n):
    depth = math.ceil(math.log2(N))
    for plan, seconds in (
        (ring.all_reduce(N), ring_all_reduce_seconds(N, n, ALPHA, BETA)),
        (ring.all_gather(N), (N - 1) * (ALPHA + n / N / BETA)),
        (ring.all_to_all(N), (N - 1) * (ALPHA + n / N / BETA)),
        (tree.broadcast(N), depth * (ALPHA + n / BETA)),
        (tree.all_reduce(N), 2 * depth * (ALPHA + n / BETA)),
        (naive.all_reduce(N), 2 * (N - 1) * (ALPHA + n / BETA)),
    ):
        assert plan_seconds(plan, n, FLAT) == pytest.approx(seconds, rel=1e-12, abs=1e-15), plan.algorithm


def test_small_tensors_like_trees_and_large_ones_rings():
    size = crossover(tree.all_reduce(8), ring.all_reduce(8), FLAT)
    assert size is not None
    assert plan_seconds(tree.all_reduce(8), size / 2, FLAT) < plan_seconds(ring.all_reduce(8), size / 2, FLAT)
    assert plan_seconds(tree.all_reduce(8), size * 2, FLAT) > plan_seconds(ring.all_reduce(8), size * 2, FLAT)
    # 6 (a + n/b) = 14 a + 14/8 n/b
    assert size == pytest.approx((14 - 6) * ALPHA * BETA / (6 - 14 / 8), rel=1e-6)
    assert crossover(ring.all_reduce(8), naive.all_reduce(8), FLAT) is None
    assert crossover(naive.all_reduce(8), ring.all_reduce(8), flat(0, 1)) == 0
    # The same bytes in fewer messages: better at every size, and never worse.
    assert crossover(ring.all_reduce(8), halving_doubling.all_reduce(8), FLAT) == 0
    assert crossover(halving_doubling.all_reduce(8), ring.all_reduce(8), FLAT) is None


def test_a_plan_is_a_line():
    latency, slope = plan_line(ring.all_reduce(8), FLAT)
    assert (latency, slope) == (pytest.approx(14 * ALPHA), pytest.approx(14 / 8 / BETA))


@pytest.mark.parametrize("N", [16, 64, 384])
@pytest.mark.parametrize("n", [1e6, 1e9])
def test_two_levels_beat_a_flat_ring_across_nodes(N, n):
    two = plan_seconds(hierarchical.all_reduce(N, 8), n, DGX_H100)
    assert two < 0.5 * plan_seconds(ring.all_reduce(N), n, DGX_H100)


def test_with_equal_links_two_levels_win_nothing_but_steps():
    two, one = hierarchical.all_reduce(16, 4), ring.all_reduce(16)
    assert plan_seconds(two, 1e12, FLAT) == pytest.approx(plan_seconds(one, 1e12, FLAT), rel=1e-6)


def test_messages_that_share_a_link_share_its_bandwidth():
    alone = nodes(2, (0, 1e12), (0, 1e9), cards=2)
    shared = nodes(2, (0, 1e12), (0, 1e9), cards=1)
    plan = hierarchical.all_reduce(4, 2)  # both ranks of a node talk to the other node at once
    assert plan_seconds(plan, 1e9, shared) == pytest.approx(2 * plan_seconds(plan, 1e9, alone), rel=0.01)


def test_bus_bandwidth_is_that_of_the_links_whatever_the_number_of_ranks():
    fast = flat(0, BETA)
    for N in (2, 8, 100):
        for op, plan in (("all_reduce", ring.all_reduce(N)), ("all_gather", ring.all_gather(N))):
            assert bus_bandwidth(op, N, 1e9, plan_seconds(plan, 1e9, fast)) == pytest.approx(BETA)


@pytest.mark.parametrize(
    ("op", "share"),
    [
        *[("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("all_to_all", 0.75)],
        *[("broadcast", 1.0), ("reduce", 1.0), ("scatter", 0.75), ("gather", 0.75)],
    ],
)
def test_the_bus_factor_is_the_share_of_the_tensor_that_a_rank_moves(op, share):
    """On 4 ranks, as in the table of nccl-tests; of all bytes that no link needs to carry more."""
    assert bus_bandwidth(op, 4, 1e9, 0.5) == share * algorithm_bandwidth(1e9, 0.5) == share * 2e9
    assert bus_bandwidth(op, 1, 1e9, 0.5) == (2e9 if op in ("broadcast", "reduce") else 0)


def test_there_is_a_bus_factor_for_every_collective_with_a_plan():
    assert set(BUS_FACTOR) == {plan.op for _, plan in all_plans(2)}


def test_a_fit_finds_the_link_behind_the_times_and_says_how_well():
    messages, sizes = [2, 2, 2, 2], [1e3, 1e5, 1e7, 1e9]
    times = [2 * ALPHA + n / BETA for n in sizes]
    found = fit(messages, sizes, times)
    assert (found.latency, found.bandwidth) == (pytest.approx(ALPHA), pytest.approx(BETA))
    assert found.residual < 1e-9
    bent = fit(messages, sizes, [t * f for t, f in zip(times, (1, 1.3, 0.8, 1), strict=True)])
    assert 0.05 < bent.residual < 0.5
    with pytest.raises(ValueError, match="at least two"):
        fit([2], [1e3], [1.0])
    with pytest.raises(ValueError, match="measure more sizes"):
        fit([2, 4], [1e3, 2e3], [1.0, 2.0])


def test_times_that_fall_with_the_size_are_all_latency():
    found = fit([2, 2, 2], [1e3, 1e6, 1e7], [3.0, 2.0, 1.0])
    assert found.bandwidth == math.inf
    # The least sum of (alpha 2/t - 1)^2, with t = 3, 2, 1.
    assert found.latency == pytest.approx((2 / 3 + 1 + 2) / (4 / 9 + 1 + 4))
