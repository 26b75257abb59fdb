"""Texts of stages: those of the whole model, with one group in flight and with several."""

import pytest
import torch.distributed as dist

import dtlearn
from dtlearn.hybrid_parallel import MeshLayout
from dtlearn.hybrid_parallel.groups import make_groups
from dtlearn.pipeline_parallel.split_model import split_gpt
from dtlearn.production.serving.generate import generate
from dtlearn.production.serving.pipelined import generate_pipelined, in_groups
from dtlearn.production.serving.requests import GenerationRequest
from dtlearn.tensor_parallel.gpt import ParallelGPT
from tests.devices import run_ranks
from tests.production.serving.texts import CONFIG, REQUESTS, model

BOUNDARIES = {1: (0, 5), 2: (0, 3, 5), 3: (0, 1, 4, 5)}  # of three stages the first and the last have no block


def on_stages(boundaries, all_num_groups):
    stage = split_gpt(model(), boundaries)[dist.get_rank()]
    return [generate_pipelined(stage, CONFIG, REQUESTS, num_groups=number) for number in all_num_groups]


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_texts_are_those_of_one_rank(device, num_ranks):
    texts, numbers = generate(model(), REQUESTS), (1, 2, 5, None)
    *others, last = run_ranks(on_stages, num_ranks, BOUNDARIES[num_ranks], numbers, device=device)
    assert last == [texts] * len(numbers)
    assert others == [[None] * len(numbers)] * (num_ranks - 1)


def on_a_mesh():
    """Two stages, each of two ranks with half of the heads."""
    groups = make_groups(MeshLayout(tp=2, pp=2))
    gpt = ParallelGPT.from_gpt(model(), group=groups.tp)
    stage = split_gpt(gpt, BOUNDARIES[2])[groups.coordinates.pp]
    return generate_pipelined(stage, CONFIG, REQUESTS, tp=2, group=groups.pp)


def test_stages_of_divided_layers_give_the_same_texts():
    run = dtlearn.run_ranks(on_a_mesh, 4)
    assert sorted(run, key=lambda texts: texts is not None) == [None, None, *[generate(model(), REQUESTS)] * 2]


def test_groups_take_the_requests_in_turn():
    assert in_groups(REQUESTS, 2) == [[0, 2, 4], [1, 3]]
    for wrong in (0, 6):
        with pytest.raises(ValueError, match=f"5 requests can be in 1 to 5 groups; got {wrong}"):
            in_groups(REQUESTS, wrong)


def refusal():
    try:
        request = GenerationRequest((1,), 2, stop_token=3)
        generate_pipelined(split_gpt(model(), (0, 5))[0], CONFIG, [request])
    except ValueError as error:
        return str(error)


def test_a_stop_token_is_refused():
    assert "only the last stage would see a stop_token" in dtlearn.run_ranks(refusal, 1)[0]
