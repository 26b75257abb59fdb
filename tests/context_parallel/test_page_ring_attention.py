"""The page beside the real ring and torch's attention, on every size; without a hop, a merge, the way home it fails."""

import functools

import pytest
import torch
import torch.distributed as dist

from dtlearn.context_parallel import own_tokens, page_ring_attention, ring_attention
from dtlearn.context_parallel.page_ring_attention import PageRingAttention, pass_on
from tests.context_parallel.parity import TOLERANCE, B, D, T, difference, divided, tensors
from tests.devices import run_ranks
from tests.sharing.groups import in_groups

LAYOUT = "contiguous"


def page(q, k, v, group):
    return PageRingAttention.apply(q, k, v, group)


def to_the_real_one(group):
    """The largest difference of outputs and gradients, and of what three steps of SGD make of q, k and v."""
    *inputs, gradient = tensors(4, 4)
    real = functools.partial(ring_attention, layout=LAYOUT, group=group)
    ours = functools.partial(page, group=group)
    results = [divided(way, *inputs, gradient, layout=LAYOUT, group=group) for way in (real, ours)]
    trained = [stepped(way, inputs, group) for way in (real, ours)]
    pairs = [*zip(*results, strict=True), *zip(*trained, strict=True)]
    return max((a - b).abs().max().item() for a, b in pairs)


def stepped(attention, inputs, group):
    own = [own_tokens(x, dim=2, layout=LAYOUT, group=group).requires_grad_() for x in inputs]
    optimizer = torch.optim.SGD(own, lr=0.5, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        attention(*own).square().sum().backward()
        optimizer.step()
    return [x.detach() for x in own]


def to_torch(group):
    return difference(functools.partial(page, group=group), layout=LAYOUT, is_causal=True, group=group)


def parity():
    return in_groups(lambda group: (to_the_real_one(group), to_torch(group)))


def skipped(number):
    """`pass_on`, of which one call in an attention, 3 cp - 2 of them, brings nothing."""
    calls, hops = iter(range(1000)), 3 * dist.get_world_size() - 2

    def sabotage(x, group):
        return x if next(calls) % hops == number % hops else pass_on(x, group)

    return sabotage


def without(name, replacement):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(page_ring_attention, name, replacement)
        return to_torch(None)


def sabotaged():
    found = {
        "a hop": without("pass_on", skipped(0)),
        "the way home": without("pass_on", skipped(-1)),
        "the mask": without("masked_scores", lambda q, k, is_own: q @ k.mT / D**0.5),
    }
    with pytest.MonkeyPatch.context() as monkeypatch:  # the last block's log-sum-exp in place of all blocks'
        monkeypatch.setattr(torch, "logaddexp", lambda a, b: b)
        found["the merge"] = to_torch(None)
    return found


@pytest.fixture(scope="module")
def run():
    return run_ranks(parity, 4, device="cpu", record=True)


def test_it_is_the_real_ring_and_torchs_attention(run):
    for of_sizes in run.values:
        for size, found in of_sizes.items():
            assert max(found) < TOLERANCE, (size, found)


def test_it_is_on_another_device(other_device):
    for found in run_ranks(parity, 2, device=other_device):
        assert max(found[2]) < TOLERANCE


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_messages_are_those_of_the_real_ring(run, size):
    """Both make as many attentions: one and three steps; torch's comparison is one more of the page's."""
    group = ",".join(map(str, range(size)))
    sends = [e for e in run.record.select(rank=0) if e.group == group and e.sends]
    assert {e.nbytes for e in sends} == ({2 * B * 4 * T // size * D * 8} if size > 1 else set())
    assert len(sends) == (9 * (3 * size - 2) if size > 1 else 0)


@pytest.mark.parametrize("size", [2, 4])
def test_without_a_part_it_fails(size):
    per_rank = run_ranks(sabotaged, size, device="cpu").values
    worst = {name: max(found[name] for found in per_rank) for name in per_rank[0]}
    assert len(worst) == 4 and min(worst.values()) > 1e-2, worst
