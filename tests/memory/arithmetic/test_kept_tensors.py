"""What autograd keeps, read off small runs in which it can be said by hand."""

import pytest
import torch
from torch import nn

from dtlearn.memory.arithmetic.kept_tensors import KeptTensor, kept_tensors


def test_a_product_keeps_its_input_and_an_addition_nothing():
    layer, x = nn.Linear(3, 5), torch.randn(2, 3)
    assert kept_tensors(lambda: layer(x) + 1, layer, x) == []  # weight and input were there before
    assert kept_tensors(lambda: layer(x + 1), layer, x) == [KeptTensor("", (2, 3), torch.float32, 24)]


def test_a_storage_is_listed_once_with_the_module_that_kept_it_first():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            y = x.exp()
            return self.first(y[:, :4]) + self.second(y[:, 4:])  # two views of one storage, kept by exp() already

    model, x = Twice(), torch.randn(2, 8, requires_grad=True)
    assert kept_tensors(lambda: model(x), model, x) == [KeptTensor("", (2, 8), torch.float32, 64)]


def test_an_error_leaves_no_hooks():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3))
    with pytest.raises(RuntimeError, match="shapes"):
        kept_tensors(lambda: model(torch.ones(1, 2)), model)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
