"""Messages and bytes by formula, beside the record."""

import pytest
import torch.distributed as dist

import dtlearn
from dtlearn.pipeline_parallel.split_model import split_gpt
from dtlearn.production.serving.generate import generate
from dtlearn.production.serving.pipelined import generate_pipelined, in_groups
from dtlearn.production.serving.traffic import (
    ModelPass,
    TrafficSum,
    passes,
    pipeline_ticks,
    pipeline_traffic,
    tensor_parallel_traffic,
)
from dtlearn.tensor_parallel.gpt import ParallelGPT
from tests.production.serving.texts import CONFIG, REQUESTS, model


def tensor_parallel():
    generate(ParallelGPT.from_gpt(model()), REQUESTS)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_tensor_parallel_rank_calls_what_the_formula_says(num_ranks):
    record = dtlearn.run_ranks(tensor_parallel, num_ranks, record=True).record
    formula = tensor_parallel_traffic(CONFIG, num_ranks, passes(REQUESTS), element_bytes=8)
    for rank in range(num_ranks):
        own = record.select(rank=rank)
        found = {}
        for event in own:
            op = event.op.removesuffix("_into_tensor").removesuffix("_single")
            calls, nbytes = found.get(op, (0, 0))
            found[op] = (calls + 1, nbytes + event.nbytes)
        assert found == formula


def test_a_decoded_token_by_hand():
    # 3 blocks: 7 all-reduces of one row of 16 numbers; 13 tokens on 2 ranks are 7 and 7, with one of padding.
    token = tensor_parallel_traffic(CONFIG, 2, [ModelPass(1, 1)], element_bytes=2)
    assert token == {"all_reduce": TrafficSum(7, 7 * 16 * 2), "all_gather": TrafficSum(1, 7 * 2)}
    assert tensor_parallel_traffic(CONFIG, 1, [ModelPass(1, 1)]) == {}


def test_passes_are_each_prompt_and_then_rounds():
    assert passes(REQUESTS[:1] + REQUESTS[3:]) == [(1, 3), (1, 2), (1, 4), *[(2, 1)] * 5, *[(1, 1)] * 4]


def pipelined(num_groups):
    stages = split_gpt(model(), (0, 2, 3, 5))
    generate_pipelined(stages[dist.get_rank()], CONFIG, REQUESTS, num_groups=num_groups)


@pytest.mark.parametrize("num_groups", [1, 3])
def test_a_pipeline_sends_what_the_formula_says(num_groups):
    record = dtlearn.run_ranks(pipelined, 3, num_groups, record=True).record
    groups = [[REQUESTS[n] for n in members] for members in in_groups(REQUESTS, num_groups)]
    formula = pipeline_traffic(CONFIG, 3, groups, element_bytes=8)
    for kind, dtype in (("activations", "float64"), ("tokens", "int64")):
        sent = [event for event in record.select(op="isend") if event.dtype.endswith(dtype)]
        assert (len(sent), sum(event.nbytes for event in sent)) == formula[kind]
        assert {(e.rank, e.peer) for e in sent} == ({(0, 1), (1, 2)} if kind == "activations" else {(2, 0)})


@pytest.mark.parametrize("num_stages", [1, 2, 4])
@pytest.mark.parametrize("num_groups", [1, 2, 4, 7])
@pytest.mark.parametrize("num_rounds", [1, 5])
def test_ticks_are_those_of_a_pipeline_played_tick_by_tick(num_stages, num_groups, num_rounds):
    free, back = [0] * num_stages, [0] * num_groups  # when a stage is free, and a group's token is back
    for _ in range(num_rounds):
        for group in range(num_groups):
            now = back[group]
            for stage in range(num_stages):
                now = free[stage] = max(now, free[stage]) + 1
            back[group] = now
    assert pipeline_ticks(num_stages, num_groups, num_rounds) == max(back)
