"""Each function, forward and backward, against what it stands for; its calls, its bytes; and what the pair is for."""

from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.sharing import along_dim
from dtlearn.sharing.differentiable import all_to_all, copy_to, gather_from, reduce_from, reduce_scatter_to, scatter_to
from tests.devices import run_ranks
from tests.sharing.groups import calls_of, in_groups

B, T, C = 2, 144, 12
NBYTES = B * T * C * 8
# Function, its arguments, what its forward and its backward do, and along which dims.
FUNCTIONS = [
    (copy_to, {}, "copy", "sum", ()),
    (reduce_from, {}, "sum", "copy", ()),
    (scatter_to, {"dim": -1}, "part", "join", (2,)),
    (scatter_to, {"dim": 1}, "part", "join", (1,)),
    (gather_from, {"dim": 2}, "join", "part", (2,)),
    (gather_from, {"dim": -2}, "join", "part", (1,)),
    (gather_from, {"dim": 1, "partial_gradients": True}, "join", "part of sum", (1,)),
    (gather_from, {"dim": -1, "partial_gradients": True}, "join", "part of sum", (2,)),
    (reduce_scatter_to, {"dim": 1}, "part of sum", "join", (1,)),
    (reduce_scatter_to, {"dim": -1}, "part of sum", "join", (2,)),
    (all_to_all, {"split_dim": 1, "concat_dim": 2}, "exchange", "exchange", (1, 2)),
    (all_to_all, {"split_dim": -1, "concat_dim": -2}, "exchange", "exchange", (2, 1)),
    (all_to_all, {"split_dim": 1, "concat_dim": 1}, "exchange", "exchange", (1, 1)),
]
# The bytes that a rank hands in, for a whole tensor of B T C float64 elements.
CALLS = {
    "sum": lambda t: [("all_reduce", NBYTES)],
    "join": lambda t: [("all_gather_into_tensor", NBYTES // t)],
    "part of sum": lambda t: [("reduce_scatter_tensor", NBYTES)],
    "exchange": lambda t: [("all_to_all_single", NBYTES // t)],
    "copy": lambda t: [],
    "part": lambda t: [],
}


def expected(what, dims, tensors, rank):
    """What a function makes of the tensors of all ranks, on one rank."""
    size = len(tensors)
    if what in ("sum", "part of sum"):
        total = sum(tensors)
        return total if what == "sum" else total.chunk(size, *dims)[rank]
    if what == "join":
        return torch.cat(tensors, *dims)
    if what == "exchange":
        return torch.cat([tensor.chunk(size, dims[0])[rank] for tensor in tensors], dims[1])
    return tensors[rank] if what == "copy" else tensors[rank].chunk(size, *dims)[rank]


def random(shape, rank, seed):
    """A tensor of one rank, which never equals another rank's and is not contiguous."""
    generator = torch.Generator().manual_seed(100 * seed + rank)
    drawn = torch.randn(*reversed(shape), dtype=torch.float64, generator=generator)
    return drawn.to(dtlearn.device()).permute(2, 1, 0)


def shapes(forward, dims, size):
    """The shapes of the input and of the output."""

    def sharded(dim):
        return [n // size if d == dim else n for d, n in enumerate((B, T, C))]

    if forward == "exchange":
        return sharded(dims[1]), sharded(dims[0])
    whole, part = sharded(None), sharded(dims[0] if dims else None)
    return (part if forward == "join" else whole), (part if forward.startswith("part") else whole)


def forward_and_backward(group):
    """The output of each function, and the gradient of its input."""
    rank, size, results = dist.get_rank(), dist.get_world_size(group), []
    for seed, (function, arguments, forward, _, dims) in enumerate(FUNCTIONS):
        shape, out_shape = shapes(forward, dims, size)
        before, gradient = random(shape, rank, seed), random(out_shape, rank, seed + 50)
        x, kept = before.clone().requires_grad_(), gradient.clone()
        out = function(x, **arguments, group=group)
        out.backward(gradient)
        assert torch.equal(x, before) and torch.equal(gradient, kept), "the caller's tensors stay as they are"
        results.append((out.detach(), x.grad))
        with torch.no_grad():
            assert not function(x, **arguments, group=group).requires_grad
    return results


def largest_error(results, rank):
    """The largest difference from what the functions of one size stand for: of outputs, and of gradients."""
    size = len(results)
    errors = {"forward": [], "backward": []}
    for seed, (_, _, *directions, dims) in enumerate(FUNCTIONS):
        of_ranks = zip(directions, (dims, dims[::-1]), shapes(directions[0], dims, size), strict=True)
        for number, (name, (what, along, shape)) in enumerate(zip(errors, of_ranks, strict=True)):
            inputs = [random(shape, other, seed + 50 * number) for other in range(size)]
            errors[name].append((results[rank][seed][number] - expected(what, along, inputs, rank)).abs().max().item())
    return {name: max(of_functions) for name, of_functions in errors.items()}


@contextmanager
def skipped(name, fake):
    """Replace one of the collectives: each rank works with what it has."""
    real = getattr(along_dim, name)
    setattr(along_dim, name, fake)
    try:
        yield
    finally:
        setattr(along_dim, name, real)


SABOTAGE = {
    "all_reduce": lambda x, group: x.clone(),
    "all_gather": lambda x, dim, group: torch.cat([x] * dist.get_world_size(group), dim),
    "reduce_scatter": lambda x, dim, group: x.chunk(dist.get_world_size(group), dim)[dist.get_rank(group)].clone(),
    "all_to_all": lambda x, split_dim, concat_dim, group: torch.cat(
        [x.chunk(dist.get_world_size(group), split_dim)[dist.get_rank(group)]] * dist.get_world_size(group), concat_dim
    ),
}


def without_each_collective(group):
    results = {}
    for name, fake in SABOTAGE.items():
        with skipped(name, fake):
            results[name] = forward_and_backward(group)
    return results


def pair_of_layers():
    """The error of the gradient of x in y = x W V, W by columns and V by rows: with the right pair, and with faults."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    x, W, V = (torch.randn(6, 6, dtype=torch.float64) for _ in range(3))

    def gradient(group, enter, leave):
        size = dist.get_world_size(group)
        inside = x.clone().requires_grad_()
        hidden = enter(inside, group=group) @ W.chunk(size, 1)[rank]
        out = leave(hidden @ V.chunk(size, 0)[rank], group=group)
        (out**2).sum().backward()
        return (inside.grad - 2 * (x @ W @ V) @ V.t() @ W.t()).abs().max().item()

    def g_that_sums_twice(x, *, group):
        return copy_to(reduce_from(x, group=group), group=group)

    def case(group):
        return {
            "f and g": gradient(group, copy_to, reduce_from),
            "without f": gradient(group, lambda x, *, group: x, reduce_from),
            "g sums in backward too": gradient(group, copy_to, g_that_sums_twice),
        }

    return in_groups(case, (1, 2, 3))


def twice():
    """The gradient of a gradient: a function and its conjugate around a cube, each rank with its own weight."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    x, W = (torch.randn(12, 12, dtype=torch.float64) for _ in range(2))
    region = {
        "copy": lambda x, group: copy_to(x, group=group),
        "gathered tokens": lambda x, group: gather_from(
            scatter_to(x, 0, group=group), 0, partial_gradients=True, group=group
        ),
    }

    def case(group):
        size, gradients = dist.get_world_size(group), {}
        for name, enter in region.items():
            inside, own = x.clone().requires_grad_(), W.chunk(size, 1)[rank].clone().requires_grad_()
            out = (enter(inside, group) @ own) ** 3
            loss = reduce_from(out.sum(), group=group)
            (gradient,) = torch.autograd.grad(loss, inside, create_graph=True)
            (gradient**2).sum().backward()
            gradients[name] = own.grad
        # Tokens become features and tokens again: nothing but what each rank makes of its own part remains.
        tokens = x.chunk(size, 0)[rank].clone().requires_grad_()
        features = all_to_all(tokens, 1, 0, group=group) ** 3
        back = all_to_all(features, 0, 1, group=group)
        (gradient,) = torch.autograd.grad(back.sum(), tokens, create_graph=True)
        (gradient**2).sum().backward()
        torch.testing.assert_close(tokens.grad, 36 * tokens.detach() ** 3, rtol=1e-12, atol=1e-12)
        return gradients

    with pytest.raises(ValueError, match="5 elements of dim 1 cannot be divided among 4 ranks"):
        reduce_scatter_to(torch.zeros(1, 5, 2), -2)
    return in_groups(case)


@pytest.fixture(scope="module")
def run():
    return run_ranks(
        lambda: (
            in_groups(forward_and_backward),
            in_groups(without_each_collective, (2, 3)),
            pair_of_layers(),
            twice(),
        ),
        4,
        device="cpu",
        record=True,
    )


def of_ranks(run, part, size):
    return [run[rank][part][size] for rank in range(size)]


def test_forward_and_backward_on_another_device(other_device):
    run = run_ranks(lambda: (in_groups(forward_and_backward),), 2, device=other_device)
    test_forward_and_backward(run, 2)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_forward_and_backward(run, size):
    for rank in range(size):
        errors = largest_error(of_ranks(run, 0, size), rank)
        assert max(errors.values()) < 1e-13


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", SABOTAGE)
def test_without_a_collective_both_directions_are_wrong(run, size, name):
    results = [of_size[name] for of_size in of_ranks(run, 1, size)]
    for rank in range(size):
        errors = largest_error(results, rank)
        assert errors["forward"] > 0.1 and errors["backward"] > 0.1


def test_calls_and_bytes(run):
    assert calls_of(run.record, 1) == []
    for size in (2, 3, 4):
        formula = []
        for _, _, forward, backward, _ in FUNCTIONS:
            formula += CALLS[forward](size) + CALLS[backward](size) + CALLS[forward](size)  # the last: no_grad
        assert calls_of(run.record, size)[: len(formula)] == formula


def test_the_pair_and_its_faults(run):
    for rank in range(3):
        for size, errors in run[rank][2].items():
            assert errors["f and g"] < 1e-12
            if size > 1:
                assert errors["without f"] > 1 and errors["g sums in backward too"] > 1


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_gradient_is_differentiated_once_more(run, size):
    torch.manual_seed(0)
    x, W = (torch.randn(12, 12, dtype=torch.float64).requires_grad_() for _ in range(2))
    (gradient,) = torch.autograd.grad(((x @ W) ** 3).sum(), x, create_graph=True)
    (gradient**2).sum().backward()
    gradients = of_ranks(run, 3, size)
    for name in gradients[0]:
        whole = torch.cat([of_rank[name] for of_rank in gradients], 1)
        torch.testing.assert_close(whole, W.grad, rtol=1e-12, atol=1e-9)
