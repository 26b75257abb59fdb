"""The naive checkpoint: right where a function depends on its inputs alone, and wrong in a way that nothing reports."""

import torch
from torch import nn

from dtlearn.memory.recomputation.naive import naive_checkpoint


def gradients(run, dropout):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 8))
    x = torch.randn(4, 8, requires_grad=True)
    loss = run(model, x).square().sum()
    loss.backward()
    return loss, [x.grad, *(p.grad for p in model.parameters())]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_without_random_numbers_it_is_right():
    plain, ours = (gradients(run, 0.0) for run in (lambda model, x: model(x), naive_checkpoint))
    assert torch.equal(plain[0], ours[0]) and same(plain[1], ours[1])


def test_with_dropout_the_loss_is_right_and_the_gradients_are_not():
    plain, ours = (gradients(run, 0.5) for run in (lambda model, x: model(x), naive_checkpoint))
    assert torch.equal(plain[0], ours[0])
    assert not same(plain[1], ours[1])


def test_without_an_input_that_requires_a_gradient_the_parameters_have_none():
    model = nn.Linear(2, 2)
    assert not naive_checkpoint(model, torch.ones(1, 2)).requires_grad
