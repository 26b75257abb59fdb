"""Ring attention beside torch's of whole sequences, on groups of 1, 2 and 4 ranks; what is sent; and mistakes in it."""

from collections import Counter

import pytest
import torch
import torch.distributed as dist

from dtlearn.context_parallel import PartialAttention, block_attention, blockwise, ring
from dtlearn.context_parallel.ring import RingAttention, ring_attention, start_hop
from dtlearn.runtime.watch.message_rules import RankView
from dtlearn.runtime.watch.nccl_rules import nccl_advice
from tests.context_parallel.parity import HEADS, TOLERANCE, B, D, T, difference
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.sharing.groups import in_groups

SIZES = (1, 2, 4)
CASES = [
    (heads, layout, is_causal) for heads in HEADS for layout in ("zigzag", "contiguous") for is_causal in (True, False)
]


def on_ring(heads, layout, is_causal, group, dtype=torch.float64):
    def attention(q, k, v):
        return ring_attention(q, k, v, layout=layout, is_causal=is_causal, group=group)

    return difference(attention, heads, layout=layout, is_causal=is_causal, group=group, dtype=dtype)


def parity():
    torch.manual_seed(dist.get_rank())  # ranks are seeded differently

    def case(group):
        return {case: on_ring(*case, group) for case in CASES}

    return in_groups(case, SIZES)


def in_few_bits():
    """Differences in fp32 and bf16; the dtypes of the output and of a gradient."""
    found = {dtype: on_ring("gqa", "zigzag", True, None, dtype) for dtype in (torch.float32, torch.bfloat16)}
    q = torch.ones(1, 2, 4, 4, dtype=torch.bfloat16, requires_grad=True)
    out = ring_attention(q, q, q)
    out.sum().backward()
    return found, (out.dtype, q.grad.dtype)


@pytest.fixture(scope="module")
def run():
    return run_ranks(parity, 4, device="cpu", record=True)


def test_it_is_attention_of_the_whole_sequence(run):
    for of_sizes in run.values:
        for size, found in of_sizes.items():
            assert len(found) == 12 and max(found.values()) < TOLERANCE, (size, found)


def test_it_is_on_another_device(other_device):
    for found in run_ranks(parity, 2, device=other_device):
        assert max(found[2].values()) < TOLERANCE


def test_in_fp32_and_bf16():
    for found, dtypes in run_ranks(in_few_bits, 4, device="cpu"):
        assert 0 < found[torch.float32] < 1e-5 < found[torch.bfloat16] < 0.1
        assert dtypes == (torch.bfloat16, torch.bfloat16)


@pytest.mark.parametrize("size", SIZES)
def test_hops_and_bytes(run, size):
    """cp-1 messages forward; in backward these, and cp of the gradients."""
    group = ",".join(map(str, range(size)))
    expected = Counter()
    for heads, _, _ in CASES:
        nbytes = 2 * B * HEADS[heads][1] * (T // size) * D * 8
        expected[nbytes] += 3 * size - 2 if size > 1 else 0
    for rank in range(size):
        events = [e for e in run.record.select(rank=rank) if e.group == group and e.is_p2p]
        sends = [e for e in events if e.sends]
        assert Counter(e.nbytes for e in sends) == expected
        assert {e.peer for e in sends} == ({(rank + 1) % size} if size > 1 else set())
        assert len(events) == 2 * len(sends)


def one_after_the_other():
    tensor = torch.ones(3)
    rank, size = dist.get_rank(), dist.get_world_size()
    works = [dist.isend(tensor, (rank + 1) % size), dist.irecv(torch.empty(3), (rank - 1) % size)]
    for work in works:
        work.wait()


def advice(record):
    ranks = sorted({e.rank for e in record.select()})
    return nccl_advice({rank: RankView(list(record.select(rank=rank)), None, False) for rank in ranks})


def test_the_messages_suit_nccl_and_a_ring_of_single_ones_does_not(run):
    assert "order of messages" not in advice(run.record)
    assert "order of messages" in advice(run_ranks(one_after_the_other, 2, device="cpu", record=True).record)


# Sabotage: what each mistake makes of the ring.


def skip_hop(number):
    """The hop of this number, counted from 0 and for each attention anew, brings nothing: the rank keeps its tensor."""

    def sabotage(monkeypatch, size):
        calls = iter(range(1000))
        hops = 3 * size - 2
        skipped = number % hops

        def hop(tensor, *, group=None):
            return (lambda: tensor) if next(calls) % hops == skipped else start_hop(tensor, group=group)

        monkeypatch.setattr(ring, "start_hop", hop)

    return sabotage


def sum_without_weights(monkeypatch, size):
    monkeypatch.setattr(blockwise, "merge", lambda a, b: PartialAttention(a.out + b.out, torch.logaddexp(a.lse, b.lse)))


def mean_without_weights(monkeypatch, size):
    monkeypatch.setattr(
        blockwise, "merge", lambda a, b: PartialAttention((a.out + b.out) / 2, torch.logaddexp(a.lse, b.lse))
    )


def lse_of_the_last_block(monkeypatch, size):
    def merge(a, b):
        return block_attention.merge(a, b)._replace(lse=b.lse)

    monkeypatch.setattr(blockwise, "merge", merge)


def blocks_of_the_other_layout(monkeypatch, size):
    whole = ring.block_between

    def block_between(rank, source, num_ranks, length, layout, *, is_causal):
        return whole(rank, source, num_ranks, length, "contiguous", is_causal=is_causal)

    monkeypatch.setattr(ring, "block_between", block_between)


SABOTAGE = {
    "the first hop of keys is skipped": skip_hop(0),
    "the last hop of the gradients is forgotten": skip_hop(-1),
    "sums in place of merges": sum_without_weights,
    "means in place of merges": mean_without_weights,
    "the lse of a block": lse_of_the_last_block,
    "contiguous blocks of zigzag tokens": blocks_of_the_other_layout,
}


def sabotaged():
    size, found = dist.get_world_size(), {"none": on_ring("gqa", "zigzag", True, None)}
    for name, sabotage in SABOTAGE.items():
        with pytest.MonkeyPatch.context() as monkeypatch:
            sabotage(monkeypatch, size)
            found[name] = on_ring("gqa", "zigzag", True, None)
    return found


@pytest.mark.parametrize("size", [2, 4])
def test_each_mistake_is_found(size):
    per_rank = run_ranks(sabotaged, size, device="cpu").values
    worst = {name: max(found[name] for found in per_rank) for name in per_rank[0]}
    assert worst.pop("none") < TOLERANCE
    assert len(worst) == len(SABOTAGE) and min(worst.values()) > 1e-2, worst


def refused():
    q = torch.ones(1, 2, 3, 4)
    return message_of(lambda: ring_attention(q, q, q)), message_of(lambda: ring_attention(q, q, q[:, :, :2]))


def test_what_does_not_fit_is_refused_before_anything_is_sent():
    run = run_ranks(refused, 2, device="cpu", record=True)
    for odd, tensors in run.values:
        assert odd.startswith("ValueError: the zigzag layout cuts a sequence into 4 chunks") and "got 6 tokens" in odd
        assert "got (1, 2, 3, 4), (1, 2, 3, 4) and (1, 2, 2, 4)" in tensors
    assert not [e for e in run.record.select() if e.is_p2p]


def second_derivative():
    q = torch.randn(1, 1, 4, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(ring_attention(q, q, q).square().sum(), q, create_graph=True)
    return message_of(lambda: gradient.sum().backward())


def test_a_second_derivative_is_refused():
    assert "once_differentiable" in run_ranks(second_derivative, 1, device="cpu")[0]
    assert issubclass(RingAttention, torch.autograd.Function)
