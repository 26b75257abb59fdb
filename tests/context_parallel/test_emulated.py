"""Attention that sleeps: as long as its pairs say, with the messages of the real one, and real again afterwards."""

import time

import pytest
import torch
import torch.distributed as dist

from dtlearn.context_parallel import attended_pairs, context_parallel_attention, emulated
from dtlearn.context_parallel.emulated import emulated_attention
from tests.context_parallel.test_ring import on_ring
from tests.devices import run_ranks

PAIR = 0.25  # so that sums of sleeps are exact
WAYS = [(method, layout) for method in ("ring", "all-gather", "ulysses") for layout in ("zigzag", "contiguous")]


def step(method, layout):
    """Seconds slept forward and backward, and whether all values are 0."""
    q, k, v = (torch.randn(1, 4, 16 // dist.get_world_size(), 4, requires_grad=True) for _ in range(3))
    slept = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(emulated, "time", FakeTime(slept))
        out = context_parallel_attention(q, k, v, method=method, layout=layout)
        forward = sum(slept)
        out.sum().backward()
    zero = not any(x.any() for x in (out, q.grad, k.grad, v.grad))
    return forward, sum(slept) - forward, zero


class FakeTime:
    def __init__(self, slept):
        self.sleep = slept.append


def ways(overlap):
    with emulated_attention(PAIR, overlap=overlap):
        found = {way: step(*way) for way in WAYS}
    return found, on_ring("gqa", "zigzag", True, None)


def real():
    for method, layout in WAYS:
        q, k, v = (torch.randn(1, 4, 16 // dist.get_world_size(), 4, requires_grad=True) for _ in range(3))
        context_parallel_attention(q, k, v, method=method, layout=layout).sum().backward()


@pytest.mark.parametrize("overlap", [True, False])
def test_it_sleeps_for_its_pairs_and_sends_what_the_real_one_sends(overlap):
    run = run_ranks(ways, 2, overlap, device="cpu", record=True)
    for rank, (found, real_again) in enumerate(run.values):
        for (method, layout), (forward, backward, zero) in found.items():
            pairs = attended_pairs(16, 2, layout)[rank] * 4 if method != "ulysses" else 16 * 17 // 2 * 2
            assert (forward, backward) == (pairs * PAIR, 2.5 * pairs * PAIR), (method, layout)
            assert zero
        assert real_again < 1e-13
    calls = [(e.op, e.nbytes) for e in run.record.select(rank=0) if not e.receives]
    expected = [(e.op, e.nbytes) for e in run_ranks(real, 2, device="cpu", record=True).record.select(rank=0)]
    expected = [call for call in expected if call[0] != "irecv"]
    assert sorted(calls[: len(expected)]) == sorted(expected)
    assert time.sleep is emulated.time.sleep
