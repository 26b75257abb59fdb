"""With stashing the gradient is that of the weights of the forward pass; without, it is that of no weights."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from dtlearn.pipeline_parallel.asynchronous.stashing import StashingStage

from ..runs import PlainSGD

X = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(3))  # two micro-batches, (2, B, 4)


def make_module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def gradients_at(weights, x):
    """The gradients of the parameters and of x at these weights, when the output's gradient is all ones."""
    module, x = make_module(), x.clone().requires_grad_()
    module.load_state_dict(weights)
    module(x).sum().backward()
    return [p.grad for p in module.parameters()], x.grad


def state(module):
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def second_backward(stash):
    """The stage after F0 F1 B0 B1, the gradient that B1 gives, and the weights before F1 and before B1."""
    stage = StashingStage(make_module(), PlainSGD, stash=stash)
    stage.forward(0, X[0])
    at_forward = state(stage.module)
    stage.forward(1, X[1])
    stage.backward(0, torch.ones(5, 4))
    at_backward = state(stage.module)
    x_gradient = stage.backward(1, torch.ones(5, 4))
    return stage, x_gradient, at_forward, at_backward


def is_near(gradients, x_gradient, expected):
    return torch.allclose(x_gradient, expected[1]) and all(map(torch.allclose, gradients, expected[0]))


def test_the_gradient_is_that_of_the_stashed_weights_and_the_update_goes_to_the_newest():
    stage, x_gradient, at_forward, at_backward = second_backward(stash=True)
    gradients = [p.grad for p in stage.module.parameters()]
    assert is_near(gradients, x_gradient, gradients_at(at_forward, X[1]))
    assert not is_near(gradients, x_gradient, gradients_at(at_backward, X[1]))
    for p, before in zip(stage.module.parameters(), at_backward.values(), strict=True):
        torch.testing.assert_close(p.detach(), before - 0.1 * p.grad)
    assert stage.missing == [0, 1] and stage.num_updates == 2


def test_without_stashing_it_is_the_gradient_of_neither():
    stage, x_gradient, at_forward, at_backward = second_backward(stash=False)
    gradients = [p.grad for p in stage.module.parameters()]
    assert not is_near(gradients, x_gradient, gradients_at(at_forward, X[1]))
    assert not is_near(gradients, x_gradient, gradients_at(at_backward, X[1]))


def test_autograd_refuses_the_mixture_unless_one_goes_round_its_check():
    module = make_module()
    outputs = [module(x) for x in X]
    optimizer = PlainSGD(module.parameters())
    outputs[0].sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs[1].sum().backward()


def test_versions_are_shared_until_an_update_and_freed_with_their_last_user():
    stage = StashingStage(make_module(), PlainSGD)
    for i in range(3):
        stage.forward(i, X[0])
    assert stage.num_versions == 1
    stage.backward(0, torch.ones(5, 4))
    stage.forward(3, X[0])
    assert stage.num_versions == 2
    for i in (1, 2, 3):
        stage.backward(i, torch.ones(5, 4))
    assert stage.num_versions == 1 and stage.missing == [0, 1, 2, 2]
    stage = StashingStage(make_module(), PlainSGD, stash=False)
    stage.forward(0, X[0])
    stage.forward(1, X[0])
    stage.backward(0, torch.ones(5, 4))
    assert stage.num_versions == 1


def test_tokens_have_no_gradient_and_the_loss_may_follow_in_the_stage():
    torch.manual_seed(0)
    stage = StashingStage(nn.Embedding(5, 3), PlainSGD)
    weight = stage.module.weight.detach().clone()
    loss = stage.forward(0, torch.tensor([1, 2]), lambda y: y.sum())
    assert loss.shape == () and not loss.requires_grad
    assert stage.backward(0) is None
    expected = functional_call(nn.Embedding(5, 3), {"weight": weight}, (torch.tensor([1, 2]),)) - 0.1
    torch.testing.assert_close(stage.module.weight[1:3].detach(), expected)
