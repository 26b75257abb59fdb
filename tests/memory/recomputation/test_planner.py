"""The planner against every possible plan, and its peak against the ledger."""

import random
from itertools import combinations

import pytest
import torch

from dtlearn.memory import StorageLedger
from dtlearn.memory.arithmetic.activations import gpt_block, table_bytes
from dtlearn.memory.recomputation.planner import LayerCost, peak_of, plan_recomputation, run_plan
from dtlearn.models import GPTConfig
from dtlearn.models.gpt import Block


def cheapest(layers, budget):
    """Seconds of the cheapest plan, by trying all sets of layers; None if none fits."""
    indices = range(len(layers))
    plans = [chosen for size in range(len(layers) + 1) for chosen in combinations(indices, size)]
    fitting = [sum(layers[i].seconds for i in chosen) for chosen in plans if peak_of(layers, chosen) <= budget]
    return min(fitting, default=None)


@pytest.mark.parametrize("seed", range(60))
def test_no_other_plan_is_cheaper(seed):
    draw = random.Random(seed)
    layers = []
    for _ in range(draw.randint(1, 8)):
        activation_bytes = draw.randint(1, 40)
        layers.append(LayerCost(activation_bytes, draw.randint(0, activation_bytes), draw.randint(0, 9)))
    for budget in (draw.randint(1, 150), draw.randint(30, 80), peak_of(layers, range(len(layers)))):
        best = cheapest(layers, budget)
        if best is None:
            with pytest.raises(ValueError, match=f"{budget} bytes are not enough"):
                plan_recomputation(layers, budget)
        else:
            plan = plan_recomputation(layers, budget)
            assert plan.seconds == best == sum(layers[i].seconds for i in plan.recompute)
            assert plan.peak == peak_of(layers, plan.recompute) <= budget


def test_a_planner_that_takes_the_largest_layer_is_noticed():
    """Sabotage: computing the largest layer again is enough for this budget, and not the cheapest."""
    layers = [LayerCost(10, 1, 9), LayerCost(7, 1, 1), LayerCost(7, 1, 1), LayerCost(1, 1, 0)]
    assert peak_of(layers, (0,)) <= 20
    assert plan_recomputation(layers, 20).seconds == cheapest(layers, 20) == 1 < layers[0].seconds


def test_a_large_budget_recomputes_nothing_and_the_smallest_possible_one_most():
    layers = [LayerCost(16, 1, 1.0)] * 6
    assert plan_recomputation(layers, 96) == ((), 96, 0.0)
    assert len(plan_recomputation(layers, 95).recompute) == 1
    assert plan_recomputation(layers, 21).seconds == 5.0  # the last one may keep everything: it is used at once
    with pytest.raises(
        ValueError, match="20 bytes are not enough: with every layer computed again the peak is 21 bytes"
    ):
        plan_recomputation(layers, 20)


def test_many_layers_are_quick_and_no_layers_are_a_plan():
    assert len(plan_recomputation([LayerCost(16, 1, 1.0)] * 500, 4000).recompute) == 267
    assert plan_recomputation([], 0) == ((), 0, 0.0)


def test_the_peak_is_what_the_ledger_sees():
    batch, length = 4, 12
    configs = [GPTConfig(48, 16, 1, heads, 32) for heads in (1, 2, 4, 8, 4, 2)]
    blocks = [Block(config) for config in configs]
    for block in blocks:
        block(torch.randn(1, length, 32)).sum().backward()  # gradients are there already
    costs = [
        LayerCost(table_bytes(gpt_block(config, batch, length)), 4 * batch * length * 32, 1.0) for config in configs
    ]
    rest = []
    for budget in (sum(cost.activation_bytes for cost in costs), 300_000, 200_000, 150_000):
        plan = plan_recomputation(costs, budget)
        x = torch.randn(batch, length, 32, requires_grad=True)
        with StorageLedger() as ledger:
            y = run_plan(blocks, x, plan)
            ledger.peak = ledger.now
            y.sum().backward()
        rest.append(ledger.peak - plan.peak)
    assert max(rest) < costs[0].activation_bytes  # what backward of one layer takes besides
    assert max(rest) - min(rest) <= 2 * costs[0].input_bytes


@pytest.mark.parametrize("cost", [(1, 2, 0.0), (1, -1, 0.0), (1, 1, -1.0)])
def test_bad_input(cost):
    with pytest.raises(
        ValueError, match="expected 0 <= input_bytes <= activation_bytes and seconds >= 0, got LayerCost"
    ):
        LayerCost(*cost)
