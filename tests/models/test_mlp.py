"""The MLP: sizes, layers, and what it refuses."""

import pytest
import torch
from torch import nn

from dtlearn.models import MLP, num_parameters


def test_default_takes_the_digits():
    model = MLP()
    assert model(torch.zeros(3, 64)).shape == (3, 10)
    assert num_parameters(model) == 64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10 == 26_122


def test_relu_between_layers_and_none_at_the_end():
    assert [type(layer) for layer in MLP((4, 5, 6, 2)).layers] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]


def test_slices_of_the_layers_compose_to_the_model():
    torch.manual_seed(0)
    model = MLP((4, 8, 8, 3))
    x = torch.randn(5, 4)
    assert torch.equal(model.layers[2:](model.layers[:2](x)), model(x))


@pytest.mark.parametrize("sizes", [(), (4,), (4, 0, 2)])
def test_wrong_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="sizes"):
        MLP(sizes)
