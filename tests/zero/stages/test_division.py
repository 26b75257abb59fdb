"""Which parameters are in which unit."""

import pytest
from torch import nn

from dtlearn.models import GPT, GPTConfig
from dtlearn.models.gpt import Attention, Block, Embedding
from dtlearn.zero.stages.division import divide_into_units

SMALL = GPTConfig(8, 4, 2, 1, 2, tie_embeddings=True)


def names(model, classes):
    """The names of each unit's parameters, tied ones once."""
    of = {parameter: name for name, parameter in model.named_parameters()}
    units = divide_into_units(model, classes)
    return {unit: sorted({of[parameter] for *_, parameter in places}) for unit, (_, places) in units.items()}


def test_the_root_has_what_no_unit_has():
    model = GPT(SMALL)
    units = names(model, [Block])
    assert list(units) == ["", "blocks.0", "blocks.1"]
    assert units[""] == ["embedding.position.weight", "embedding.token.weight", "head.norm.bias", "head.norm.weight"]
    assert units["blocks.1"] == sorted(name for name, _ in model.named_parameters() if name.startswith("blocks.1."))
    assert len(names(model, [])[""]) == len(list(model.parameters()))


def test_a_tied_parameter_stands_in_two_places_of_one_unit():
    (_, places) = divide_into_units(GPT(SMALL), [Block])[""]
    weights = [parameter for _, attribute, parameter in places if attribute == "weight"]
    assert len(weights) == len(set(weights)) + 1


def test_the_innermost_unit_has_a_parameter():
    units = names(GPT(SMALL), [Block, Attention])
    assert list(units) == ["", "blocks.0", "blocks.0.attention", "blocks.1", "blocks.1.attention"]
    assert not any("attention." in name for name in units["blocks.0"]) and len(units["blocks.0.attention"]) == 8


def test_a_unit_that_stands_in_two_places_is_one():
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    assert names(model, [nn.Linear]) == {"": [], "0": ["0.bias", "0.weight"]}
    assert names(nn.Sequential(layer, nn.Sequential(layer)), [])[""] == ["0.bias", "0.weight"]


def test_a_parameter_of_two_units_is_refused():
    with pytest.raises(ValueError, match=r"token\.weight and head\.projection\.weight are one parameter, and lie"):
        divide_into_units(GPT(SMALL), [Block, Embedding])
    layer = nn.Linear(2, 2)
    model = nn.Sequential(nn.Sequential(layer), nn.Sequential(layer))
    with pytest.raises(ValueError, match="in two units, 0 and 1: one would free it while the other uses it"):
        divide_into_units(model, [nn.Sequential])


def test_a_class_without_a_module_is_refused():
    with pytest.raises(ValueError, match="units has Conv2d, but no module of the model is one"):
        divide_into_units(GPT(SMALL), [Block, nn.Conv2d])
