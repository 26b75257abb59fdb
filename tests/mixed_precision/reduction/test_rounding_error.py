"""Simulated sums are those of real ranks to the last bit; what the order of the additions costs."""

import pytest
import torch

from dtlearn.collectives import hierarchical, naive, ring, tree
from dtlearn.mixed_precision.reduction import rounding_error
from dtlearn.mixed_precision.reduction.average import WHEN, divisors
from dtlearn.mixed_precision.reduction.rounding_error import (
    PLANS,
    additions,
    depth,
    error_by_ranks,
    order_of,
    ring_additions,
    simulate_all_reduce,
    simulate_average,
    sum_error,
    sum_in_order,
    sum_on_rank,
)
from dtlearn.runtime.run import run_ranks

NUMEL = 101  # chunks of different sizes
SIXTEEN = [torch.bfloat16, torch.float16]


def rows(num_ranks, dtype=torch.float32, numel=NUMEL):
    return torch.randn(num_ranks, numel, generator=torch.Generator().manual_seed(num_ranks)).to(dtype)


def sums_of(summands):
    """On each rank: the sums of both dtypes, in one run."""
    return [sum_on_rank(each) for each in summands]


@pytest.mark.parametrize("world_size", range(2, 9))
def test_a_simulated_sum_has_the_bits_of_the_run(world_size):
    summands = [rows(world_size, dtype) for dtype in SIXTEEN]
    for sums in run_ranks(sums_of, world_size, summands, device="cpu", timeout=120):
        for each, by_algorithm in zip(summands, sums, strict=True):
            for algorithm, plan in PLANS.items():
                assert torch.equal(by_algorithm[algorithm], simulate_all_reduce(plan(world_size), each))


def test_another_order_gives_other_bits():
    """Sabotage: with the additions of another algorithm the comparison above would fail."""
    for size in (4, 8):
        each = rows(size, torch.bfloat16)
        assert not torch.equal(
            simulate_all_reduce(PLANS["ring"](size), each), simulate_all_reduce(tree.all_reduce(size), each)
        )


def test_every_plan_adds_each_row_once():
    whole = torch.arange(1.0, 13.0)[:, None] * torch.ones(12, 40)
    plans = [plan(12) for plan in PLANS.values()]
    for plan in (*plans, naive.all_reduce(12), hierarchical.all_reduce(12, 4), tree.double_all_reduce(12)):
        assert torch.equal(simulate_all_reduce(plan, whole), whole.sum(0))
        assert all(len(additions(plan, chunk)) == 11 for chunk in range(plan.num_chunks))
    assert torch.equal(simulate_all_reduce(ring.all_reduce(1), whole[:1]), whole[0])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 17, 32])
def test_a_rings_additions_without_its_plan(size):
    plan = ring.all_reduce(size)
    assert [ring_additions(size, chunk) for chunk in range(size)] == [additions(plan, chunk) for chunk in range(size)]


def test_how_many_additions_follow_one_another():
    assert [depth(order_of("ring", size)) for size in (1, 2, 8, 1024)] == [0, 1, 7, 1023]
    for algorithm in ("tree", "halving-doubling"):
        assert [depth(order_of(algorithm, size)) for size in (1, 2, 8, 1024)] == [0, 1, 3, 10]
    assert [depth(order_of(algorithm, 1000)) for algorithm in PLANS] == [999, 10, 10]


def test_a_ring_in_bfloat16_stands_still_at_256():
    ones = torch.ones(1024, 1, dtype=torch.bfloat16)
    assert sum_in_order(order_of("ring", 1024), ones).item() == 256  # 256 + 1 is 256
    for algorithm in ("tree", "halving-doubling"):
        assert sum_in_order(order_of(algorithm, 1024), ones).item() == 1024
    assert error_by_ranks(ones, torch.bfloat16, [1024])["ring"][1024].kept == 0.25


def test_the_error_grows_with_the_ranks_in_a_ring_and_hardly_in_a_tree():
    errors = error_by_ranks(rows(1024, numel=500), torch.bfloat16, [2, 32, 1024])
    assert errors["ring"][1024].relative > 10 * errors["ring"][2].relative
    for algorithm in ("tree", "halving-doubling"):
        assert errors[algorithm][1024].relative < 5 * errors[algorithm][2].relative
    assert errors["fp32 sum"][1024].relative < 1.5 * errors["fp32 sum"][2].relative < 2 * 2**-9
    half = error_by_ranks(rows(1024, numel=500), torch.float16, [1024])
    assert errors["ring"][1024].relative > 5 * half["ring"][1024].relative  # 3 bits more


def test_the_error_of_a_sum():
    summands = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    assert sum_error(torch.tensor([3.0, 4.0]), summands) == (0.0, 1.0)
    assert sum_error(torch.tensor([1.5, 2.0]), summands) == (0.5, 0.5)
    assert sum_error(torch.tensor([3.0 - 4.0, 4.0 + 3.0]), summands) == (1.0, 1.0)  # away, and not shorter


def test_a_simulated_average():
    for when in WHEN:
        for dtype in SIXTEEN:
            first, last = divisors(4, when)
            once = (rows(4).to(dtype) / first, last)
            plan = tree.all_reduce(4)
            assert torch.equal(
                simulate_average(rows(4), when, dtype, "tree"), (simulate_all_reduce(plan, once[0]) / last).float()
            )
    large = torch.full((64, 1), 2048.0)
    means = [simulate_average(large, when, torch.float16, "tree").item() for when in WHEN]
    assert means == [2048, torch.inf, 2048]


def test_bad_input_is_told():
    with pytest.raises(ValueError, match="this plan is for 3 ranks; there are 4 rows"):
        simulate_all_reduce(ring.all_reduce(3), rows(4))
    with pytest.raises(ValueError, match="the algorithms are ring, tree, halving-doubling; got 'star'"):
        order_of("star", 4)
    assert rounding_error.ONE_ROUNDING not in PLANS
