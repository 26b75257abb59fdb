"""Layers: the modules that own parameters; what is on its way says so to whoever touches it."""

import pytest
import torch
from torch import nn

import dtlearn
from dtlearn.communication_scheduling.layers import layers_of, mark_on_its_way
from tests.data_parallel.runs import MODELS, MixedTypes
from tests.devices import run_ranks


def test_a_layer_has_its_own_parameters_in_the_order_of_registration():
    layers, waits = layers_of(MODELS["twice"]())
    assert [(layer.name, len(layer.parameters), layer.nbytes) for layer in layers] == [
        ("", 2, 8), ("first", 2, 8 * 56), ("shared", 2, 8 * 72), ("last", 2, 8 * 36)
    ]  # fmt: skip
    assert list(waits.values()) == [[0], [1], [2], [3]]


def test_a_tied_parameter_is_of_the_first_and_waited_for_by_both():
    model = MODELS["tied"]()
    layers, waits = layers_of(model)
    token = next(n for n, layer in enumerate(layers) if layer.name == "embedding.token")
    assert waits[model.head.projection] == [token]


def test_views_and_pieces_are_of_the_same_memory():
    layer = layers_of(nn.Linear(3, 2))[0][0]
    weight, bias = layer.views(layer.flat)
    layer.piece(4 * 5, 4 * 3, layer.flat).fill_(1)
    assert weight.flatten().tolist() == [0, 0, 0, 0, 0, 1] and bias.tolist() == [1, 1]


def test_what_is_no_layer_is_refused():
    with pytest.raises(ValueError, match="nothing to send"):
        layers_of(nn.ReLU())
    model = nn.Linear(2, 2)
    model.bias = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    with pytest.raises(ValueError, match="the model differ in dtype or device"):
        layers_of(model)
    assert len(layers_of(MixedTypes())[0]) == 3  # each layer may have its own


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def step(model):
    torch.optim.SGD(model.parameters(), lr=0.1).step()


def scaled_step(model):
    scaler = torch.amp.GradScaler(dtlearn.device().type if dtlearn.device().type == "cuda" else "cpu")
    scaler.scale(torch.ones((), device=dtlearn.device()))
    scaler.step(torch.optim.SGD(model.parameters(), lr=0.1))


def touched():
    said = []
    for touch in (clip, step, scaled_step):
        model = nn.Linear(3, 2).to(dtlearn.device())
        model(torch.ones(1, 3, device=dtlearn.device())).sum().backward()
        for parameter in model.parameters():
            mark_on_its_way(parameter)
        with pytest.raises(RuntimeError, match="is on its way") as caught:
            touch(model)
        said.append(str(caught.value))
    return said


def test_what_needs_all_gradients_is_refused_with_a_reason(device):
    for said in run_ranks(touched, 1, device=device)[0]:
        assert "clipping by the global norm, GradScaler's check for inf" in said and "bfloat16" in said
