"""Each operator, forward and backward, against what it stands for; its calls, its bytes; and what the pair is for."""

import pytest
import torch
import torch.distributed as dist

from dtlearn import tensor_parallel
from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel import (
    copy_to_tensor_parallel_region,
    gather_from_sequence_parallel_region,
    reduce_from_tensor_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)
from tests.tensor_parallel.groups import calls_of, in_groups

B, T, C = 2, 12, 24
NBYTES = B * T * C * 8
# Operator, what its forward and its backward do, and along which dim.
OPERATORS = {
    "copy_to_tensor_parallel_region": ("copy", "sum", None),
    "reduce_from_tensor_parallel_region": ("sum", "copy", None),
    "scatter_to_tensor_parallel_region": ("part", "join", 2),
    "gather_from_tensor_parallel_region": ("join", "part", 2),
    "scatter_to_sequence_parallel_region": ("part", "join", 1),
    "gather_from_sequence_parallel_region": ("join", "part of sum", 1),
    "reduce_scatter_to_sequence_parallel_region": ("part of sum", "join", 1),
}
# Of B T C float64 elements in the whole tensor: what a rank hands in.
CALLS = {
    "sum": lambda t: [("all_reduce", NBYTES)],
    "join": lambda t: [("all_gather_into_tensor", NBYTES // t)],
    "part of sum": lambda t: [("reduce_scatter_tensor", NBYTES)],
    "copy": lambda t: [],
    "part": lambda t: [],
}


def expected(what, dim, tensors, rank):
    """What an operator makes of the tensors of all ranks, on one rank."""
    if what in ("sum", "part of sum"):
        total = sum(tensors)
        return total if what == "sum" else total.chunk(len(tensors), dim)[rank]
    if what == "join":
        return torch.cat(tensors, dim)
    return tensors[rank] if what == "copy" else tensors[rank].chunk(len(tensors), dim)[rank]


def made(shape, rank, seed):
    """Of a rank: never the same as another's, and not contiguous."""
    generator = torch.Generator().manual_seed(100 * seed + rank)
    return torch.randn(*reversed(shape), dtype=torch.float64, generator=generator).permute(2, 1, 0)


def shapes(forward, dim, size):
    """Of the input and of the output."""
    whole, part = [B, T, C], [B, T, C]
    if dim is not None:
        part[dim] //= size
    return (part if forward == "join" else whole), (part if forward.startswith("part") else whole)


def every_operator():
    rank = dist.get_rank()

    def case(group):
        size, results = dist.get_world_size(group), []
        for seed, (name, (forward, _, dim)) in enumerate(OPERATORS.items()):
            shape, out_shape = shapes(forward, dim, size)
            before, gradient = made(shape, rank, seed), made(out_shape, rank, seed + 50)
            x, kept = before.clone().requires_grad_(), gradient.clone()
            out = getattr(tensor_parallel, name)(x, group=group)
            out.backward(gradient)
            assert torch.equal(x, before) and torch.equal(gradient, kept), "the caller's tensors stay as they are"
            results.append((out.detach(), x.grad))
            with torch.no_grad():
                assert not getattr(tensor_parallel, name)(x, group=group).requires_grad
        return results

    return in_groups(case)


@pytest.fixture(scope="module")
def operators():
    return run_ranks(every_operator, 4, device="cpu", record=True)


def test_forward_and_backward(operators):
    for rank, of_sizes in enumerate(operators):
        for size, results in of_sizes.items():
            for seed, ((out, gradient), (name, row)) in enumerate(zip(results, OPERATORS.items(), strict=True)):
                forward, backward, dim = row
                shape, out_shape = shapes(forward, dim, size)
                inputs = [made(shape, other, seed) for other in range(size)]
                gradients = [made(out_shape, other, seed + 50) for other in range(size)]
                torch.testing.assert_close(out, expected(forward, dim, inputs, rank), rtol=0, atol=1e-13, msg=name)
                torch.testing.assert_close(gradient, expected(backward, dim, gradients, rank), rtol=0, atol=1e-13)


def test_calls_and_bytes(operators):
    assert calls_of(operators.record, 1) == []
    for size in (2, 3, 4):
        formula = []
        for forward, backward, _ in OPERATORS.values():
            formula += CALLS[forward](size) + CALLS[backward](size) + CALLS[forward](size)  # the last: no_grad
        assert calls_of(operators.record, size) == formula


def pair_of_layers():
    """y = (x W)(V), W by columns and V by rows, with the right pair, and with faults: the gradients of x."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    x, W, V = (torch.randn(6, 6, dtype=torch.float64) for _ in range(3))

    def gradient(group, enter, leave):
        size = dist.get_world_size(group)
        inside = x.clone().requires_grad_()
        hidden = enter(inside, group) @ W.chunk(size, 1)[rank]
        out = leave(hidden @ V.chunk(size, 0)[rank], group)
        (out**2).sum().backward()
        return (inside.grad - 2 * (x @ W @ V) @ V.t() @ W.t()).abs().max().item()

    def f(x, group):
        return copy_to_tensor_parallel_region(x, group=group)

    def g(x, group):
        return reduce_from_tensor_parallel_region(x, group=group)

    def g_that_sums_twice(x, group):
        return copy_to_tensor_parallel_region(g(x, group), group=group)

    def case(group):
        return {
            "f and g": gradient(group, f, g),
            "without f": gradient(group, lambda x, group: x, g),
            "g sums in backward too": gradient(group, f, g_that_sums_twice),
        }

    return in_groups(case, (1, 2, 3))


def twice():
    """The gradient of a gradient, and a sequence-parallel region before ranks that all compute the same."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    x, W = (torch.randn(4, 4, dtype=torch.float64) for _ in range(2))

    def case(group):
        size = dist.get_world_size(group)
        inside, own = x.clone().requires_grad_(), W.chunk(size, 1)[rank].clone().requires_grad_()
        out = (copy_to_tensor_parallel_region(inside, group=group) @ own) ** 3
        loss = reduce_from_tensor_parallel_region(out.sum(), group=group)
        (gradient,) = torch.autograd.grad(loss, inside, create_graph=True)
        (gradient**2).sum().backward()
        tokens = x[None, rank * 4 // size : (rank + 1) * 4 // size].clone().requires_grad_()
        same = gather_from_sequence_parallel_region(tokens, tensor_parallel_output_grad=False, group=group)
        (same**2).sum().backward()
        assert torch.equal(tokens.grad, 2 * tokens), "all ranks compute the same: no sum"
        with pytest.raises(ValueError, match="5 elements of dim 1 cannot be divided among 2 ranks"):
            reduce_scatter_to_sequence_parallel_region(torch.zeros(1, 5, 2), group=group)
        return own.grad

    return in_groups(case, (2,))


def test_the_pair_and_its_faults():
    run = run_ranks(lambda: (pair_of_layers(), twice()), 4, device="cpu")
    for rank in range(3):
        for size, errors in run[rank][0].items():
            assert errors["f and g"] < 1e-12
            if size > 1:
                assert errors["without f"] > 1 and errors["g sums in backward too"] > 1
    torch.manual_seed(0)
    x, W = (torch.randn(4, 4, dtype=torch.float64).requires_grad_() for _ in range(2))
    (gradient,) = torch.autograd.grad(((x @ W) ** 3).sum(), x, create_graph=True)
    (gradient**2).sum().backward()
    whole = torch.cat([run[rank][1][2] for rank in range(2)], 1)
    torch.testing.assert_close(whole, W.grad, rtol=0, atol=1e-10)
