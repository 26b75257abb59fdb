"""Megatron's names: each is the floor's function with the dim of its region, whose own test has all else."""

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn import tensor_parallel
from dtlearn.sharing.differentiable import copy_to, gather_from, reduce_from, reduce_scatter_to, scatter_to
from tests.devices import run_ranks

B, T, C = 2, 4, 6
# Megatron's name, the floor's function, its dim, and whether it joins parts.
NAMES = {
    "copy_to_tensor_parallel_region": (copy_to, {}),
    "reduce_from_tensor_parallel_region": (reduce_from, {}),
    "scatter_to_tensor_parallel_region": (scatter_to, {"dim": 2}),
    "gather_from_tensor_parallel_region": (gather_from, {"dim": 2}),
    "scatter_to_sequence_parallel_region": (scatter_to, {"dim": 1}),
    "gather_from_sequence_parallel_region": (gather_from, {"dim": 1, "partial_gradients": True}),
    "reduce_scatter_to_sequence_parallel_region": (reduce_scatter_to, {"dim": 1}),
}


def both(function, other):
    """Output and gradient of two functions of this rank's input."""
    results = []
    for call in (function, other):
        generator = torch.Generator().manual_seed(dist.get_rank())
        x = torch.randn(B, T, C, generator=generator, dtype=torch.float64).to(dtlearn.device()).requires_grad_()
        out = call(x)
        out.backward(torch.full_like(out, dist.get_rank() + 1.0))
        results.append((out.detach(), x.grad))
    return results


def all_names():
    results = {}
    for name, (function, arguments) in NAMES.items():
        region = getattr(tensor_parallel, name)
        results[name] = both(region, lambda x, f=function, a=arguments: f(x, **a))
    # Ranks that all compute the same after the gathering: no sum.
    results["same"] = both(
        lambda x: tensor_parallel.gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False),
        lambda x: gather_from(x, 1),
    )
    return results


@pytest.fixture(scope="module")
def run(device):
    return run_ranks(all_names, 2, device=device)


@pytest.mark.parametrize("name", [*NAMES, "same"])
def test_it_is_the_floors(run, name):
    for results in run:
        (out, gradient), (floors, floors_gradient) = results[name]
        assert torch.equal(out, floors) and torch.equal(gradient, floors_gradient)
