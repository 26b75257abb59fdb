"""Norms on a rank's own tokens: marks that stay, partial gradients and their sum."""

import copy
import pickle

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.runtime import run_ranks
from dtlearn.tensor_parallel import (
    mark_sequence_parallel,
    reduce_sequence_parallel_gradients,
    sequence_parallel_parameters,
)

B, T, C = 2, 12, 6


def marked_model(dtype=torch.float64):
    """Two norms, a layer whose bias alone is marked, and one that is not; one norm comes twice."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(C), nn.Linear(C, C), nn.LayerNorm(C), nn.Linear(C, C)).to(dtype)
    model.append(model[2])
    mark_sequence_parallel(model[0])
    mark_sequence_parallel(model[1], "bias")
    mark_sequence_parallel(model[2])
    return model


MARKED = ["0.weight", "0.bias", "1.bias", "2.weight", "2.bias"]


def test_marks_stay_in_copies():
    """A mark on the parameter itself would be lost in the first two."""
    model = marked_model()
    on_meta = copy.deepcopy(model).to_empty(device="meta")
    for same in (copy.deepcopy(model), on_meta, pickle.loads(pickle.dumps(model)), model.float()):
        assert list(sequence_parallel_parameters(same)) == MARKED
    assert sequence_parallel_parameters(nn.LayerNorm(C)) == {}


def test_a_parameter_that_is_not_there():
    with pytest.raises(ValueError, match="LayerNorm has no parameter biass; it has: weight, bias"):
        mark_sequence_parallel(nn.LayerNorm(C), "biass")


def sums_on_rank():
    """Gradients by size of the group, of whole sequences and of the rank's own tokens, before and after the sum."""
    found = {}
    x, weight = torch.randn(2, B, T, C, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for size in (1, 2, 3, 4):
        group = dist.new_group(list(range(size)))
        if (rank := dist.get_rank()) >= size:
            continue
        models = marked_model(), marked_model()
        models[1].append(nn.Linear(C, C, dtype=torch.float32))  # of another dtype, and frozen: nothing of it is sent
        models[1][5].requires_grad_(False)
        mark_sequence_parallel(models[1][5])
        whole, partial = models
        (whole(x) * weight).sum().backward()
        own = [tensor.chunk(size, dim=1)[rank] for tensor in (x, weight)]  # (B, T/t, C)
        (partial[:5](own[0]) * own[1]).sum().backward()
        before = {name: p.grad.clone() for name, p in partial.named_parameters() if p.grad is not None}
        reduce_sequence_parallel_gradients(partial, group=group)
        after = {name: p.grad for name, p in partial.named_parameters() if p.grad is not None}
        found[size] = {name: p.grad for name, p in whole.named_parameters()}, before, after
    return found


@pytest.fixture(scope="module")
def run():
    return run_ranks(sums_on_rank, 4, device="cpu", record=True)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_partial_gradients_are_summed_in_one_call(run, size):
    for rank in range(size):
        whole, before, after = run[rank][size]
        assert list(whole) == list(before)
        for name, gradient in after.items():
            apart = (gradient - whole[name]).abs().max().item()
            if name in MARKED:
                assert apart < 1e-12
                missing = (before[name] - whole[name]).abs().max().item()
                assert size == 1 or missing > 0.1  # sabotage: not summed
            else:
                assert torch.equal(gradient, before[name])
        group = ",".join(map(str, range(size)))
        calls = run.record.select(rank=rank, op="all_reduce", group=group)
        assert [call.nbytes for call in calls] == [8 * 5 * C]
