"""Backward passes of all kinds: with weights that were freed they give what one process gives, or say why not."""

import pytest
import torch
from torch.func import vmap
from torch.utils.checkpoint import checkpoint

from dtlearn.runtime.run import run_ranks
from tests.data_parallel.runs import message_of
from tests.zero.stages.beside_one_process import apart, batch, inner, sharded
from tests.zero.stages.sharded_training import TOLERANCE


def gradient(model, **options):
    x = batch().requires_grad_()
    return torch.autograd.grad(model(x).sum(), x, **options)[0]


def too_steep(gradient):
    return (gradient.norm(dim=1) - 1).square().mean()


def penalty(model):
    x = batch().requires_grad_()
    y = model(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (y.square().mean() + too_steep(slope)).backward()


def penalty_alone(model):
    too_steep(gradient(model, create_graph=True)).backward()


def penalty_after_another_pass(model):
    slope = gradient(model, create_graph=True)
    model(batch(5)).square().mean().backward()
    too_steep(slope).backward()


def penalty_with_other_losses(model):
    slope = gradient(model, create_graph=True)
    (model(batch(5)).square().mean() + model(batch(6)).mean() + too_steep(slope)).backward()


def penalty_of_a_backward_pass(model):
    x = batch().requires_grad_()
    model(x).sum().backward(create_graph=True)
    slope, x.grad = x.grad, None
    model.zero_grad()
    for unit in getattr(model, "units", ()):
        unit.drop_gradients()
    too_steep(slope).backward()


def gradient_of_the_input(model):
    model(batch() + gradient(model)).square().mean().backward()


def backward_twice(model):
    loss = model(batch()).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()


def two_graphs(model):
    losses = [model(batch()).square().mean(), model(batch(9)).mean()]
    for loss in losses:
        loss.backward()


def inside(model, number):
    """What a layer in the middle of a unit returned, kept by a hook; and the output."""
    kept = []
    handle = inner(model).blocks[number][1].register_forward_hook(lambda module, inputs, output: kept.append(output))
    y = model(batch())
    handle.remove()
    return y, kept[0]


def auxiliary_loss(model):
    y, kept = inside(model, 1)
    (y.square().mean() + kept.square().mean()).backward()


def auxiliary_loss_alone(model):
    inside(model, 1)[1].square().mean().backward()


def forward_fails(model):
    message_of(lambda: model(batch()[:, :3]))
    model(batch())  # whose graph is dropped
    model(batch()).square().mean().backward()


def without_gradients(model):
    with torch.inference_mode():
        model(batch(7))
    with torch.no_grad():
        model(batch(7))
    model(batch()).square().mean().backward()


def frozen_and_trained_again(model):
    block = inner(model).blocks[0].requires_grad_(False)
    model(batch(4)).mean().backward()
    model.zero_grad()
    block.requires_grad_(True)
    model(batch()).square().mean().backward()


def frozen(model):
    inner(model).blocks[0].requires_grad_(False)
    model(batch()).square().mean().backward()


def checkpointed(model):
    checkpoint(model, batch().requires_grad_(), use_reentrant=False).square().mean().backward()


def hessian(model):
    torch.autograd.functional.hvp(lambda x: model(x).square().sum(), batch(), batch(3))
    model(batch()).square().mean().backward()


def same_parameters(model):
    torch.func.functional_call(model, dict(model.named_parameters()), (batch(),)).square().mean().backward()


RIGHT = [
    penalty,
    penalty_alone,
    penalty_after_another_pass,
    penalty_with_other_losses,
    penalty_of_a_backward_pass,
    gradient_of_the_input,
    backward_twice,
    two_graphs,
    auxiliary_loss,
    forward_fails,
    without_gradients,
    frozen_and_trained_again,
    frozen,
    checkpointed,
    hessian,
    same_parameters,
]
KEPT = {"freed": True, "kept": False, "root kept": None}


def right():
    found = {(way.__name__, kept): apart(way, reshard_after_forward=KEPT[kept]) for way in RIGHT for kept in KEPT}
    found["auxiliary loss alone, kept"] = apart(auxiliary_loss_alone, reshard_after_forward=False)
    return found


def refused():
    found = {}
    model = sharded()
    found["from inside"] = message_of(lambda: auxiliary_loss_alone(model))
    adam = torch.optim.Adam(model.parameters())
    model(batch()).mean().backward(inputs=list(model.parameters()))
    found["inputs"] = message_of(adam.step)
    model(batch()).mean().backward()
    found["then"] = message_of(adam.step)
    model.zero_grad()
    gradient(model)
    found["no gradients"] = [param.grad for param in model.parameters()]
    found["vmap"] = message_of(lambda: vmap(model)(batch()))
    return found


@pytest.fixture(scope="module")
def on_two():
    return run_ranks(lambda: (right(), refused()), 2, device="cpu", timeout=110, record=True)


def test_they_are_those_of_one_process(on_two):
    for found, _ in on_two:
        assert len(found) == 3 * len(RIGHT) + 1
        assert not {case: away for case, away in found.items() if not away < TOLERANCE}


def test_what_cannot_be_right_is_an_error(on_two):
    for _, found in on_two:
        assert "has been modified by an inplace operation" in found["from inside"]  # autograd's own words
        assert "no gradient has come since the last forward pass" in found["inputs"]
        assert "without inputs=" in found["inputs"] and found["then"] == ""
        assert "RuntimeError" in found["vmap"]


def test_a_gradient_of_the_input_reduces_nothing(on_two):
    assert all(set(found["no gradients"]) == {None} for _, found in on_two)
