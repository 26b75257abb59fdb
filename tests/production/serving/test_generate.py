"""Texts with a cache, without one, and of the heads of several ranks: token by token the same."""

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.production.serving.generate import cache_for, generate
from dtlearn.production.serving.kv_cache import cache_bytes
from dtlearn.production.serving.requests import GenerationRequest
from dtlearn.tensor_parallel.gpt import ParallelGPT
from tests.devices import run_ranks
from tests.production.serving.texts import CONFIG, REQUESTS, model


@pytest.fixture(scope="module")
def texts():
    """The texts of one rank, without a cache."""
    return generate(model(), REQUESTS, cached=False)


def test_texts_are_the_same_with_a_cache(texts):
    assert generate(model(), REQUESTS) == texts
    assert [len(text) for text in texts] == [request.max_new_tokens for request in REQUESTS]
    assert len({token for text in texts for token in text}) > 5  # not one token again and again


def test_a_text_does_not_depend_on_the_others(texts):
    assert [generate(model(), [request])[0] for request in REQUESTS] == texts
    assert generate(model(), REQUESTS[::-1]) == texts[::-1]


def test_a_stop_token_ends_a_text(texts):
    stop = texts[1][4]
    (text,) = generate(model(), [GenerationRequest((5,), 20, temperature=1.0, seed=7, stop_token=stop)])
    assert text == texts[1][: texts[1].index(stop) + 1]


def test_a_text_may_fill_the_context_and_no_more():
    (text,) = generate(model(), [GenerationRequest((1,) * 30, 3)])
    assert len(text) == 3  # the last one is never given to the model
    for cached in (True, False):
        with pytest.raises(ValueError, match="request 0 needs 33 positions"):
            generate(model(), [GenerationRequest((1,) * 30, 4)], cached=cached)


def of_my_heads():
    gpt = ParallelGPT.from_gpt(model())
    texts = [generate(gpt, REQUESTS, cached=cached) for cached in (True, False)]
    return *texts, cache_for(gpt, 3, 9).nbytes


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_ranks_with_some_heads_each_give_the_same_texts(device, num_ranks, texts):
    run = run_ranks(of_my_heads, num_ranks, device=device)
    assert [(with_cache, without) for with_cache, without, _ in run] == [(texts, texts)] * num_ranks
    size = cache_bytes(CONFIG, 3, 9, tp=num_ranks, element_bytes=8)
    assert [nbytes for *_, nbytes in run] == [size] * num_ranks


def refusal():
    gpt = ParallelGPT(CONFIG, seed=0, sequence_parallel=True)
    try:
        generate(gpt, REQUESTS)
    except ValueError as error:
        dist.barrier()
        return str(error)


def test_sequence_parallelism_is_refused():
    assert "make the model with sequence_parallel=False" in dtlearn.run_ranks(refusal, 2)[1]


def test_draws_that_differed_between_ranks_would_be_seen(texts):
    """The comparison of texts can fail: with another seed most drawn tokens are others."""
    others = [GenerationRequest(r.prompt, r.max_new_tokens, r.temperature, r.seed + 1) for r in REQUESTS]
    found = generate(model(), others)
    assert [a == b for a, b in zip(found, texts, strict=True)] == [r.temperature == 0 for r in REQUESTS]


def test_the_models_are_told_apart_by_more_than_rounding():
    logits = model()(torch.tensor([REQUESTS[0].prompt]))[0, -1].sort().values
    assert logits[-1] - logits[-2] > 1e-3
