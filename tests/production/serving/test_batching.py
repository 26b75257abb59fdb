"""Two policies: the same texts, other steps."""

import pytest

import dtlearn
from dtlearn.production.serving.batching import plan, serve
from dtlearn.production.serving.generate import generate
from dtlearn.production.serving.requests import GenerationRequest
from dtlearn.tensor_parallel.gpt import ParallelGPT
from tests.production.serving.texts import REQUESTS, model

POLICIES = ("continuous", "static")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("num_slots", [1, 2, 5, 8])
def test_texts_are_those_of_generate_and_steps_those_of_the_plan(policy, num_slots):
    run = serve(model(), REQUESTS, num_slots, policy)
    assert [list(text) for text in run.texts] == generate(model(), REQUESTS)
    assert run.grid == plan(REQUESTS, num_slots, policy).grid


def on_ranks():
    return serve(ParallelGPT.from_gpt(model()), REQUESTS, 2)


def test_ranks_with_some_heads_each_decide_alike():
    assert list(dtlearn.run_ranks(on_ranks, 2)) == [serve(model(), REQUESTS, 2)] * 2


def test_by_hand():
    requests = [
        GenerationRequest((1,), length, arrival=arrival) for length, arrival in ((4, 0), (1, 0), (2, 1), (1, 1))
    ]
    continuous, static = (plan(requests, 2, policy) for policy in POLICIES)
    assert continuous.grid == ((0, 1), (0, 2), (0, 2), (0, 3))
    assert static.grid == ((0, 1), (0, None), (0, None), (0, None), (2, 3), (2, None))
    assert (continuous.num_steps, static.num_steps) == (4, 6)
    assert (continuous.tokens_per_step, static.tokens_per_step) == (2.0, 8 / 6)
    assert (continuous.busy, static.busy) == (1.0, 8 / 12)
    assert (continuous.waiting, static.waiting) == ((0, 0, 0, 2), (0, 0, 3, 3))
    assert (continuous.latency, static.latency) == ((4, 1, 2, 3), (4, 1, 5, 4))


def test_a_server_waits_for_the_first_request_and_between_two():
    requests = [GenerationRequest((1,), 1, arrival=arrival) for arrival in (4, 1)]
    assert plan(requests, 1).grid == ((None,), (1,), (None,), (None,), (0,))


def test_a_text_that_ends_early_makes_room():
    first = generate(model(), REQUESTS[:1])[0]
    early = GenerationRequest(REQUESTS[0].prompt, 10, stop_token=first[2])
    run = serve(model(), [early, REQUESTS[4]], 1)
    end = first.index(first[2]) + 1
    assert run.first_step(1) == end and list(run.texts[0]) == first[:end]


def test_what_no_server_can_do_is_refused():
    with pytest.raises(ValueError, match="at least one slot; got 0"):
        plan(REQUESTS, 0)
    with pytest.raises(ValueError, match='"continuous" or "static"; got \'dynamic\''):
        serve(model(), REQUESTS, 1, "dynamic")
