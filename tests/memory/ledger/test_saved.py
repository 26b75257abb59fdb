"""What autograd keeps is seen, and nothing is changed by looking: results, errors, lifetimes, the hooks of others."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from dtlearn.memory import MemoryLedger

WIDTH = 16
SIZE = 4 * WIDTH * WIDTH  # of an activation


class Layers(nn.Sequential):
    """Layers whose backward pass needs their output: each keeps one activation."""

    def __init__(self, depth: int) -> None:
        super().__init__(*[nn.Tanh() for _ in range(depth)])


def activations(work):
    """The record of `work(inputs)`, which returns a loss, and of its backward pass: activations after each."""
    inputs = torch.randn(WIDTH, WIDTH, requires_grad=True)
    with MemoryLedger(inputs=inputs) as ledger:
        with ledger.phase("forward"):
            loss = work(inputs)
        with ledger.phase("backward"):
            loss.backward()
    record = ledger.record()
    live = record.live("activations")
    return live[record.phases[0].stop], max(live), live[-1]


def test_what_is_kept_is_an_activation_until_the_backward_pass_has_used_it():
    assert activations(lambda x: Layers(3)(x).sum()) == (3 * SIZE, 3 * SIZE, 0)
    assert activations(lambda x: (x + 1 + 1).sum()) == (0, 0, 0)  # a sum keeps nothing


def test_a_checkpoint_keeps_what_it_computes_anew_while_backward_needs_it():
    def work(x):
        x = checkpoint(Layers(3), x, use_reentrant=False)
        return checkpoint(Layers(3), x, use_reentrant=False).sum()

    after_forward, most, at_the_end = activations(work)
    assert (after_forward, at_the_end) == (SIZE, 0)  # the input of the second; that of the first was there before
    assert most == 4 * SIZE  # and the three of the segment that is computed anew


def test_hooks_of_others_say_what_is_kept():
    def offload(x):
        with save_on_cpu():
            return Layers(3)(x).sum()

    assert activations(offload)[0] == 3 * SIZE  # copies: on a GPU they would be elsewhere

    def halve(x):
        with saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):
            return Layers(3)(x).sum()

    assert activations(halve)[0] == 3 * SIZE // 2

    def keep_nothing(x):
        with saved_tensors_hooks(lambda t: tuple(t.shape), torch.zeros):
            return Layers(3)(x).sum()

    assert activations(keep_nothing)[0] == 0


def test_hooks_are_as_before_afterwards():
    before = saved_tensors_hooks.__enter__
    with pytest.raises(ZeroDivisionError), MemoryLedger():
        assert saved_tensors_hooks.__enter__ is not before
        1 / 0  # noqa: B018
    assert saved_tensors_hooks.__enter__ is before
    own = saved_tensors_hooks(lambda t: t.detach(), lambda t: t)
    pack = own.pack_hook
    with MemoryLedger(), own:
        torch.ones(2, requires_grad=True).exp()
    assert own.pack_hook is pack


def test_gradients_are_the_same_to_the_bit():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8))
    inputs = torch.randn(4, 8)

    def gradients():
        model.zero_grad()
        model(inputs).square().sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    plain = gradients()
    with MemoryLedger(model):
        counted = gradients()
    assert all(torch.equal(a, b) for a, b in zip(plain, counted, strict=True))


def test_second_derivatives():
    x = torch.tensor([2.0], requires_grad=True)
    with MemoryLedger():
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    assert (first.item(), second.item()) == (12.0, 12.0)


def test_a_change_in_place_of_what_was_kept_is_still_an_error():
    def change():
        x = torch.ones(3, requires_grad=True) * 2
        y = x.sin()
        x.add_(1)
        y.sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        change()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"), MemoryLedger():
        change()


def test_graphs_die_without_the_garbage_collector():
    gc.disable()
    try:
        with MemoryLedger() as ledger:
            y = torch.ones(WIDTH, WIDTH, requires_grad=True).tanh().exp()
            gone = weakref.ref(y.untyped_storage())
            del y
            assert gone() is None
            assert ledger.now == 0
    finally:
        gc.enable()
