"""Stages in a row are the whole model, with its names; what does not fit is refused with a reason."""

import pytest
import torch
from torch import nn

from dtlearn.models import GPT, MLP, GPTConfig
from dtlearn.pipeline_parallel import split_gpt, split_sequential, tied_embedding

SMALL = GPTConfig(16, 8, 2, 2, 8)
TIED = GPTConfig(16, 8, 2, 2, 8, tie_embeddings=True)


def in_a_row(stages, x):
    for stage in stages:
        x = stage(x)
    return x


@pytest.mark.parametrize("boundaries", [(0, 4), (0, 2, 4), (0, 1, 3, 4), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("config", [SMALL, TIED])
def test_the_stages_of_a_gpt_are_the_model_with_its_names(config, boundaries):
    model = GPT(config)
    stages = split_gpt(model, boundaries)
    tokens = torch.randint(16, (3, 5))
    assert len(stages) == len(boundaries) - 1
    assert torch.equal(in_a_row(stages, tokens), model(tokens))
    states = [stage.state_dict() for stage in stages]
    names = [name for state in states for name in state]
    assert names == list(model.state_dict())
    whole = GPT(config)
    whole.load_state_dict({name: value for state in states for name, value in state.items()})
    assert torch.equal(whole(tokens), model(tokens))


def test_a_tied_weight_is_shared_in_one_stage_and_copied_for_two():
    model = GPT(TIED)
    (alone,) = split_gpt(model, (0, 4))
    assert alone.head.projection.weight is alone.embedding.token.weight
    assert tied_embedding(TIED, 1) == tied_embedding(SMALL, 3) == ()
    first, _, last = stages = split_gpt(model, (0, 1, 2, 4))
    assert last.head.projection.weight is not first.embedding.token.weight
    assert torch.equal(last.head.projection.weight, first.embedding.token.weight)
    assert model.head.projection.weight is model.embedding.token.weight  # the model is as it was
    one, other = (dict(stages[stage].named_parameters())[name] for stage, name in tied_embedding(TIED, 3))
    assert (one, other) == (first.embedding.token.weight, last.head.projection.weight)


def test_sizes_make_a_new_model():
    torch.manual_seed(0)
    stages = split_gpt(SMALL, (0, 2, 4))
    torch.manual_seed(0)
    tokens = torch.randint(16, (3, 5), generator=torch.Generator().manual_seed(1))
    assert torch.equal(in_a_row(stages, tokens), GPT(SMALL)(tokens))


def test_the_stages_of_a_sequential_keep_its_names():
    layers = MLP((6, 5, 4, 3)).layers
    stages = split_sequential(layers, (0, 1, 4, 5))
    x = torch.randn(2, 6)
    assert torch.equal(in_a_row(stages, x), layers(x))
    assert [name for stage in stages for name, _ in stage.named_parameters()] == [
        n for n, _ in layers.named_parameters()
    ]
    assert stages[1][1] is layers[2]


@pytest.mark.parametrize(
    ("boundaries", "message"),
    [
        ((0, 1, 2, 3, 4, 5), "5 stages need 5 links or more, but the model has 4"),
        ((0,), "start with 0 and end with the number of links, 4"),
        ((1, 4), "start with 0 and end with the number of links, 4"),
        ((0, 2), "start with 0 and end with the number of links, 4"),
        ((0, 2, 2, 4), "stage 1 would be links 2 to 2"),
        ((0, 3, 2, 4), "stage 1 would be links 3 to 2"),
    ],
)
def test_boundaries_that_do_not_fit_are_refused(boundaries, message):
    for cut in (
        lambda: split_gpt(SMALL, boundaries),
        lambda: split_sequential(nn.Sequential(*(nn.ReLU() for _ in range(4))), boundaries),
    ):
        with pytest.raises(ValueError, match=message):
            cut()


def test_a_module_that_is_used_twice_stays_in_both_places():
    layer, x = nn.Linear(3, 3), torch.randn(2, 3)
    model = nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(3, 3))
    stages = split_sequential(model, (0, 3, 4))
    assert len(stages[0]) == 3 and torch.equal(in_a_row(stages, x), model(x))


def test_a_parameter_in_two_stages_that_nobody_ties_is_refused():
    layer = nn.Linear(3, 3, bias=False)
    model, tied = nn.Sequential(layer, nn.Tanh(), layer), ((0, "0.weight"), (1, "2.weight"))
    message = (
        r"'0.weight' of stage 0 and '2.weight' of stage 1 are one parameter.*give tied=\(\(0, '0.weight'\), \(1, '2"
    )
    with pytest.raises(ValueError, match=message):
        split_sequential(model, (0, 2, 3))
    assert len(split_sequential(model, (0, 2, 3), tied=tied)) == 2
    three = nn.Sequential(layer, layer, layer)
    with pytest.raises(ValueError, match="cut the model so that they lie in one stage"):
        split_sequential(three, (0, 1, 2, 3), tied=tied)
    assert len(split_sequential(three.requires_grad_(False), (0, 1, 2, 3))) == 3  # nobody trains it
