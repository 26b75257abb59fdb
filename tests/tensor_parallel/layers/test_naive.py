"""A divided weight that is gathered before its product; the naive networks are compared in `test_feed_forward`."""

import torch
from torch import nn

from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel.layers.naive import WeightGatheredLinear
from tests.sharing.groups import in_groups
from tests.tensor_parallel.parity import errors, reference, tensors


def gathered():
    torch.manual_seed(3)
    linears = [nn.Linear(5, 12, bias=bias).double() for bias in (True, False)]
    x, gradient = tensors((3, 5), (3, 12))
    expected = [reference(linear, x, gradient) for linear in linears]

    def case(group):
        layers = [WeightGatheredLinear.from_linear(linear, group=group) for linear in linears]
        return [max(errors(layer, x, gradient, of, group).values()) for layer, of in zip(layers, expected, strict=True)]

    return in_groups(case)


def test_parity():
    for of_sizes in run_ranks(gathered, 4, device="cpu"):
        assert max(max(found) for found in of_sizes.values()) < 1e-12
