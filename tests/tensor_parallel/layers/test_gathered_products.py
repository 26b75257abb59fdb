"""Products of gathered tokens: equal to whole ones, their communication, and what autograd keeps."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.memory import kept_tensors
from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel import gather_from_sequence_parallel_region
from dtlearn.tensor_parallel.layers.gathered_products import SEQUENCE_DIM, gathered_products
from tests.sharing.groups import SIZES, calls_of, in_groups

B, T, IN, OUT = 2, 12, 6, 24


def draw():
    """x, and the weight and bias of two layers, of which the second has no bias; and what the outputs are times."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return normal(B, T, IN), normal(OUT, IN), normal(OUT), normal(OUT // 2, IN), normal(B, T, 3 * OUT // 2)


def whole():
    """Outputs and gradients in one process."""
    x, first, bias, second, factor = draw()
    leaves = [tensor.requires_grad_() for tensor in (x, first, bias, second)]
    outputs = F.linear(x, first, bias), F.linear(x, second)
    (torch.cat(outputs, -1).sin() * factor).sum().backward()
    return outputs, [leaf.grad for leaf in leaves]


def case(group):
    t, rank = dist.get_world_size(group), dist.get_rank(group)
    x, first, bias, second, factor = draw()
    leaves = [x.chunk(t, 1)[rank].clone(), *(tensor.chunk(t)[rank].clone() for tensor in (first, bias, second))]
    x, first, bias, second = [leaf.requires_grad_() for leaf in leaves]
    factors = [part.chunk(t, -1)[rank] for part in factor.split([OUT, OUT // 2], -1)]

    def products():
        return gathered_products(x, (first, bias), (second, None), group=group)

    def plain():
        gathered = gather_from_sequence_parallel_region(x, SEQUENCE_DIM, group=group)
        return F.linear(gathered, first, bias), F.linear(gathered, second)

    outputs = products()
    (torch.cat(outputs, -1).sin() * torch.cat(factors, -1)).sum().backward()
    found = outputs, [leaf.grad.clone() for leaf in leaves]
    # The gradient of nothing but x, and that of nothing but a bias.
    only_x = torch.autograd.grad(products()[1].sum(), x)[0]
    kept = [
        sum(k.bytes for k in kept_tensors(run, nn.ParameterList([first, bias, second]))) for run in (products, plain)
    ]
    x.requires_grad_(False)
    only_bias = torch.autograd.grad(products()[0].sum(), bias)[0]
    return found, only_x, only_bias, kept


def all_sizes():
    return in_groups(case)


@pytest.fixture(scope="module")
def run():
    return run_ranks(all_sizes, 4, device="cpu", record=True)


def apart(a, b):
    return (a - b).abs().max().item()


@pytest.mark.parametrize("t", SIZES)
def test_outputs_and_gradients_are_those_of_the_whole(run, t):
    outputs, gradients = whole()
    _, _, bias, second, _ = draw()
    for rank in range(t):
        (own, own_gradients), only_x, only_bias, _ = run[rank][t]
        assert all(apart(a, b.chunk(t, -1)[rank]) < 1e-12 for a, b in zip(own, outputs, strict=True))
        dims = (1, 0, 0, 0)
        for a, b, dim in zip(own_gradients, gradients, dims, strict=True):
            assert apart(a, b.chunk(t, dim)[rank]) < 1e-12
        assert apart(only_x, second.sum(0).expand(B, T // t, IN)) < 1e-12
        assert apart(only_bias, torch.full_like(bias, B * T).chunk(t)[rank]) < 1e-12


@pytest.mark.parametrize("t", [2, 3, 4])
def test_one_gather_forward_and_in_backward_one_and_a_reduce_scatter_for_all_layers(run, t):
    size = 8 * B * T * IN
    gather, scatter = ("all_gather_into_tensor", size // t), ("reduce_scatter_tensor", size)
    first_step = calls_of(run.record, t)[:3]
    assert first_step == [gather, gather, scatter]
    assert calls_of(run.record, 1) == []


@pytest.mark.parametrize("t", SIZES)
def test_a_ranks_own_tokens_are_kept(run, t):
    """Sabotage of memory: gathered first and multiplied then, the whole input is."""
    _, _, _, (own, gathered) = run[0][t]
    assert own == 8 * B * T * IN // t
    assert gathered == 8 * B * T * IN
