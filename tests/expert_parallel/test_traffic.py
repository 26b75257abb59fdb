"""Bytes and calls of the record are those of the formulas, from the routing that happened; so is what a rank holds."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.expert_parallel import (
    ExpertParallelMixture,
    GatheredMixture,
    dispatch_calls,
    even_elements,
    gathered_calls,
    imbalance,
    mixture_elements,
)
from tests.devices import run_ranks

from .runs import SMALL

ROWS, TOKENS, C = 2, 8, SMALL.hidden_size
N = ROWS * TOKENS
SKEWS = {"as drawn": [0.0] * 4, "skewed": [2.0, 0.0, 0.0, 0.0], "two experts only": [2.0, 2.0, 0.0, 0.0]}


def once(mixture_class, bias, dtype):
    """Forward and backward once: the load of this rank, and the size of what it holds."""
    mixture = mixture_class(SMALL, seed=4, global_counts=False).to(dtype)
    mixture.router.selection_bias.copy_(torch.tensor(bias))
    torch.manual_seed(dist.get_rank())
    x = torch.randn(ROWS, TOKENS, C, dtype=dtype, requires_grad=True)
    mixture(x).sum().backward()
    return mixture.routing.load(kept=True).tolist(), sum(p.numel() for p in mixture.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_to_alls(size, skew, dtype):
    run = run_ranks(once, size, ExpertParallelMixture, SKEWS[skew], dtype, device="cpu", record=True)
    loads = [load for load, _ in run.values]
    for rank, (_, held) in enumerate(run.values):
        assert held == mixture_elements(SMALL, size)
        calls = dispatch_calls(loads, rank, C, dtype.itemsize)
        events = list(run.record.select(rank=rank))
        if size == 1:
            assert not events and sum(call.sent for call in calls) == 0
            continue
        assert [(e.op, e.nbytes) for e in events] == [(call.op, call.nbytes) for call in calls]
        assert [e.phase for e in events[:3]] == ["forward"] * 3
        for event, call in zip(events, calls, strict=True):
            to_each = event.detail["splits"][0]
            unit = event.nbytes / sum(to_each) if sum(to_each) else 0
            assert call.sent == (sum(to_each) - to_each[rank]) * unit


def test_even_choices_are_the_formula():
    loads = [[N * SMALL.top_k // 4] * 4] * 4
    for call in dispatch_calls(loads, 0, C, 8)[1:]:
        assert call.sent == 8 * even_elements(N, SMALL.top_k, C, 4)
    assert imbalance(torch.tensor(loads).sum(0)) == 1.0


def test_the_naive_way_sends_ep_over_k_times_as_much_whatever_is_chosen():
    for skew in ("as drawn", "skewed"):
        run = run_ranks(once, 4, GatheredMixture, SKEWS[skew], torch.float64, device="cpu", record=True)
        calls = gathered_calls(N, SMALL, 4, 8, 8)
        for rank in range(4):
            events = list(run.record.select(rank=rank))
            forward, backward = events[:4], events[4:]
            for of_phase, name in ((forward, "forward"), (backward, "backward")):
                expected = sorted((call.op, call.nbytes) for call in calls if call.phase == name)
                ops = {"all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter"}
                assert sorted((ops.get(e.op, e.op), e.nbytes) for e in of_phase) == expected
    rows = sum(call.sent for call in calls if call.what in ("tokens", "outputs"))
    assert rows / (4 * 8 * even_elements(N, SMALL.top_k, C, 4)) == 4 / SMALL.top_k
