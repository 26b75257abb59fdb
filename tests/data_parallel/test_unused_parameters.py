"""The walk over the graph: which parameters a forward pass used."""

from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dtlearn.data_parallel.unused_parameters import parameters_used, unused_parameters


@dataclass
class Outputs:
    logits: torch.Tensor
    more: dict


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y, z: y + z,
        lambda y, z: [y, (z,)],
        lambda y, z: {"y": y, "z": [z]},
        lambda y, z: OrderedDict(y=y, z=z),
        lambda y, z: Outputs(y, {"z": z}),
        lambda y, z: (y, 3, None, "text", z),
    ],
)
def test_all_outputs_are_followed_wherever_they_lie(wrap):
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(4))
    x = torch.ones(1, 2)
    y, z = layers[0](layers[2](x)), layers[2](x)
    assert unused_parameters(wrap(y, z), list(layers.parameters())) == [2, 3, 6, 7]


def test_a_parameter_can_be_an_output_itself_and_be_used_often():
    weight, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    assert unused_parameters([weight, weight * weight], [weight, other]) == [1]
    assert unused_parameters(other, [weight, other]) == [0]


def test_what_needs_no_gradient_leads_nowhere():
    weight, frozen = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2), requires_grad=False)
    y = weight.detach() * 2 + frozen
    assert parameters_used(y) == set()
    assert unused_parameters(y, [weight, frozen]) == [0, 1]


def test_a_deep_graph_is_no_deep_recursion():
    weight = nn.Parameter(torch.ones(1))
    y = weight
    for _ in range(5000):
        y = y * 1.0
    assert unused_parameters(y, [weight]) == []


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_reentrant_checkpoint_hides_what_it_uses(use_reentrant):
    layer = nn.Linear(2, 2)
    y = checkpoint(layer, torch.ones(1, 2, requires_grad=True), use_reentrant=use_reentrant)
    assert unused_parameters(y, list(layer.parameters())) == ([0, 1] if use_reentrant else [])
