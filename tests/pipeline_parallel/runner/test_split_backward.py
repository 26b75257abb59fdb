"""I and W together are B; of a linear layer each is one matrix product, and W waits."""

import copy
import pickle

import pytest
import torch
from torch import nn

from dtlearn.models import GPT, GPTConfig
from dtlearn.pipeline_parallel.runner.split_backward import (
    SplitLinear,
    add_gradient,
    defer_linear_weights,
    defer_products,
    deferred_work,
    weight_work,
)
from tests.pipeline_parallel.runs import MatrixProducts


def gradients(module):
    return {name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}


@torch.no_grad()
def do_all(work):
    for part in work:
        part()


def equal(a, b):
    return a.keys() == b.keys() and all(torch.allclose(a[name], b[name], rtol=0, atol=1e-12) for name in a)


@pytest.mark.parametrize("shape", [(6,), (5, 6), (2, 3, 6)])
@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_layer_is_torchs(shape, bias):
    layer = nn.Linear(6, 4, bias=bias).double()
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True), *layer.parameters()]
    arguments = [*tensors, None] if not bias else tensors
    assert torch.equal(SplitLinear.apply(*arguments), layer(tensors[0]))
    assert torch.autograd.gradcheck(lambda *x: SplitLinear.apply(*x, *[None] * (not bias)), tensors)


@pytest.mark.parametrize(
    "trained", [(False, True, True), (True, False, True), (True, True, False), (True, False, False)]
)
def test_what_needs_no_gradient_gets_none(trained):
    x, layer = torch.randn(5, 6), nn.Linear(6, 4)
    for tensor, needs in zip((x, layer.weight, layer.bias), trained, strict=True):
        tensor.requires_grad_(needs)
    for is_split in (False, True):
        x.grad, work = None, []
        layer.zero_grad()
        y = SplitLinear.apply(x, layer.weight, layer.bias)
        if is_split:
            with deferred_work(work):
                y.sum().backward()
            do_all(work)
        else:
            y.sum().backward()
        assert tuple(tensor.grad is not None for tensor in (x, layer.weight, layer.bias)) == trained


def split_gpt():
    """A GPT and a copy whose linear layers leave their weights' gradients for W."""
    torch.manual_seed(0)
    whole = GPT(GPTConfig(16, 8, 2, 2, 8, tie_embeddings=True)).double()
    split = copy.deepcopy(whole)
    defer_linear_weights(split)
    return whole, split, torch.randint(16, (3, 8))


def test_two_parts_are_the_whole():
    whole, split, tokens = split_gpt()
    whole(tokens).square().sum().backward()
    for _ in range(2):  # B as a whole, then I and W: nothing else changes
        split.zero_grad()
        split(tokens).square().sum().backward()
        assert equal(gradients(split), gradients(whole))
        split.zero_grad()
        work = []
        with deferred_work(work):
            split(tokens).square().sum().backward()
        early = gradients(split)
        assert [n for n, g in early.items() if g is None] == [
            name for name, _ in split.named_parameters() if ("attention." in name or "feed_forward." in name)
        ]
        assert len(work) == 2 * 6 + 1  # and that of the head, whose weight is tied: the embedding's part is there
        do_all(work)
        assert equal(gradients(split), gradients(whole))


def test_the_matrix_products_are_divided():
    layer = nn.Linear(32, 16, bias=False)
    x = torch.randn(8, 32, requires_grad=True)
    defer_linear_weights(layer)
    y, work = layer(x), []
    with deferred_work(work), MatrixProducts() as inputs:
        y.sum().backward()
    with MatrixProducts() as weights:
        do_all(work)
    assert inputs.count == weights.count == 1


def test_a_function_of_ones_own_takes_part():
    weight, done = torch.ones(3, requires_grad=True), []
    assert not weight_work(done.clear)
    work = []
    with deferred_work(work):
        assert weight_work(lambda: add_gradient(weight, torch.full((3,), 2.0)))
        inner = []
        with deferred_work(inner):
            pass
        assert weight_work(lambda: add_gradient(weight, torch.ones(3)))
    assert weight.grad is None and len(work) == 2 and not inner
    do_all(work)
    assert weight.grad.tolist() == [3.0] * 3


def test_layers_with_a_forward_of_their_own_are_left_alone():
    class Own(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    module = nn.Sequential(Own(2, 2), nn.ReLU())
    defer_linear_weights(module)
    assert "forward" not in module[0].__dict__


def computed(layer):
    """Its weight is no leaf: it is computed from two parameters."""
    return nn.utils.parametrizations.weight_norm(layer)


def hooked(layer):
    """Its weight's gradient is halved."""
    layer.weight.register_hook(lambda gradient: gradient / 2)
    return layer


def accumulated(layer):
    """Its bias's gradient is doubled when it has been added."""

    def double(bias):
        bias.grad *= 2

    layer.bias.register_post_accumulate_grad_hook(double)
    return layer


@pytest.mark.parametrize("change", [computed, hooked, accumulated])
def test_what_somebody_else_reads_gets_its_gradient_in_the_backward_pass(change):
    torch.manual_seed(0)
    whole = nn.Sequential(change(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 4)).double()
    torch.manual_seed(0)
    split = nn.Sequential(change(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 4)).double()
    defer_linear_weights(split)
    x, work = torch.randn(5, 6, dtype=torch.float64), []
    whole(x).square().sum().backward()
    with deferred_work(work):
        split(x).square().sum().backward()
    assert len(work) == 1  # of the last layer
    do_all(work)
    assert equal(gradients(split), gradients(whole))


def test_a_layer_whose_forward_was_replaced_is_left_alone():
    layer = nn.Linear(2, 2)
    layer.forward = lambda x: x
    defer_linear_weights(layer)
    assert torch.equal(layer(torch.ones(2)), torch.ones(2))


def test_a_copy_has_weights_of_its_own():
    layer = nn.Linear(2, 2)
    defer_linear_weights(layer)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        with torch.no_grad():
            twin.weight.zero_()
        assert torch.equal(twin(torch.ones(1, 2)), twin.bias[None]) and layer.weight.any()


def test_under_autocast_the_gradients_have_the_dtype_of_the_weights():
    torch.manual_seed(0)
    layer, x, work = nn.Linear(8, 8), torch.randn(4, 8, requires_grad=True), []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x).sum().backward()
    expected, from_x = gradients(layer), x.grad
    layer.zero_grad()
    x.grad = None
    defer_linear_weights(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with deferred_work(work):
            layer(x).sum().backward()
        do_all(work)
    assert layer.weight.grad.dtype == x.grad.dtype == torch.float32
    assert torch.allclose(x.grad, from_x, atol=1e-2)
    for name, gradient in gradients(layer).items():
        assert torch.allclose(gradient, expected[name], atol=0.05), name


class Divided(nn.Module):
    """A layer whose product stands between operations of its own, as those that ranks divide."""

    product = staticmethod(torch.nn.functional.linear)

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2))

    def forward(self, x):
        return 2 * self.product(x, self.weight, None)


def test_the_product_of_a_divided_layer_waits_too():
    layer, x, work = Divided(), torch.randn(4, 2, requires_grad=True), []
    layer(x).sum().backward()
    expected, layer.weight.grad = layer.weight.grad, None
    defer_products(layer)
    with deferred_work(work):
        layer(x).sum().backward()
    assert layer.weight.grad is None and len(work) == 1
    work.pop()()
    assert torch.equal(layer.weight.grad, expected)
