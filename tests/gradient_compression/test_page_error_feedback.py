"""The page: to the last bit what the real classes compute, on 1, 2 and 4 ranks, under our DDP and torch's."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.gradient_compression import page_error_feedback
from dtlearn.gradient_compression.codecs.sparse import TopK
from dtlearn.gradient_compression.hooks import CompressionState, compress_hook
from dtlearn.gradient_compression.page_error_feedback import TopKState, topk_hook
from tests.data_parallel.runs import MODELS, distance
from tests.devices import run_ranks
from tests.gradient_compression.runs import WRAPS, loss_of, same_bits, train, wrapped_with

CASES = [(wrap, k) for wrap in WRAPS for k in (3, 40, 10**6)]


def of_page(wrap, k, keeps=None, **options):
    """`keeps(state)` is called after each backward pass."""
    state = TopKState(k)
    return train(wrapped_with(wrap, state, topk_hook, **options), after=keeps and (lambda _: keeps(state)))


def of_real(wrap, k, **options):
    return train(wrapped_with(wrap, CompressionState(TopK(k=k)), compress_hook, **options))


def forgets(state):
    """What was not sent is dropped."""
    state.residuals.clear()


def shares(state):
    """All ranks keep the mean of what they did not send: a rank sends what another one owes, too."""
    for residual in state.residuals.values():
        residual.copy_(mean_of(residual))


def mean_of(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def takes_its_own(full, shard, *, group):
    """In the place of the all-gather."""
    full.copy_(shard.repeat(len(full) // len(shard)))


def sabotaged():
    expected = of_real("ours", 3)
    away = {keeps.__name__: distance(of_page("ours", 3, keeps), expected) for keeps in (forgets, shares)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_error_feedback, "all_gather_single", takes_its_own)
        away["takes_its_own"] = distance(of_page("ours", 3), expected)
    return away


def parity():
    equal = {case: same_bits(of_page(*case), of_real(*case)) for case in CASES}
    models = {"make": lambda: MODELS["twice"]().float()}  # an empty parameter, and one without a dimension
    equal["twice"] = same_bits(of_page("ours", 5, **models), of_real("ours", 5, **models))
    return equal, sabotaged() if dist.get_world_size() > 1 else {}


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_it_is_the_real_one_to_the_last_bit(world_size):
    for equal, away in run_ranks(parity, world_size, device="cpu", timeout=110):
        assert len(equal) == len(CASES) + 1 and all(equal.values()), equal
        assert len(away) == (3 if world_size > 1 else 0) and all(value > 1e-3 for value in away.values()), away


def on_device():
    return [same_bits(of_page(wrap, 5), of_real(wrap, 5)) for wrap in ("ours", "views")]


def test_so_it_is_on_another_device(other_device):
    assert all(equal == [True, True] for equal in run_ranks(on_device, 2, device=other_device))


def one_step():
    train(wrapped_with("ours", TopKState(10), topk_hook), steps=1)


def test_bytes():
    record = run_ranks(one_step, 2, device="cpu", record=True).record
    for rank in (0, 1):
        sent = record.select(rank=rank, phase="backward")
        assert [event.op for event in sent] == ["all_gather_into_tensor"] * 4
        assert [event.nbytes for event in sent] == [40, 80] * 2  # of each bucket: values, and indices in int64


def sent_and_kept():
    """On one rank the mean is what was sent. For each step and parameter: sent and kept together are what was given?"""
    state = TopKState(5)
    model, exact = wrapped_with("ours", state, topk_hook), []
    parameters = list(model.module.parameters())
    for step in range(3):
        gradients = torch.autograd.grad(loss_of(model.module, step), parameters)
        given = [
            g + state.residuals.get(p, torch.zeros_like(p)).view_as(p)
            for p, g in zip(parameters, gradients, strict=True)
        ]
        model.zero_grad()
        loss_of(model, step).backward()
        exact += [
            torch.equal(p.grad + state.residuals[p].view_as(p), g) for p, g in zip(parameters, given, strict=True)
        ]
        assert sum(int(p.grad.count_nonzero()) for p in parameters) == 10  # of two buckets
    return exact


def test_sent_and_kept_is_what_was_given_to_the_last_bit():
    (exact,) = run_ranks(sent_and_kept, 1, device="cpu")
    assert len(exact) == 18 and all(exact)
