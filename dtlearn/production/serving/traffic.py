"""Messages and bytes of generation, by formula; the record of a run says the same.

Shapes in this file: as in `kv_cache`; V is the vocabulary size, p the stages of a pipeline, e the bytes of a number.

    tensor parallel    each pass: 2 L + 1 all-reduces of B T C e bytes, and an all-gather of B V/t e from each rank
    pipeline           each pass: p - 1 messages of B T C e bytes; each round: one of 8 B bytes, the tokens, back

While a token is decoded, T = 1: the messages are as many as for a whole prompt, and tiny. Their latency counts, and a
deployment keeps tensor parallelism inside a machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dtlearn.models import GPTConfig
from dtlearn.sharing.shards import divide
from dtlearn.tensor_parallel.vocabulary.rows import padded_vocabulary

from .requests import GenerationRequest

TOKEN_BYTES = 8  # int64


class ModelPass(NamedTuple):
    """One call of the model: B texts with T new tokens each."""

    texts: int
    tokens: int


class TrafficSum(NamedTuple):
    """The calls of one kind: how many there are, and how many bytes are handed to all of them together."""

    calls: int
    nbytes: int


def passes(requests: Sequence[GenerationRequest]) -> list[ModelPass]:
    """The calls of `generate` with a cache, if no text ends early: each prompt, then a token of each that is left."""
    rounds = range(1, max(request.max_new_tokens for request in requests))
    left = [sum(request.max_new_tokens > number for request in requests) for number in rounds]
    return [*(ModelPass(1, len(request.prompt)) for request in requests), *(ModelPass(texts, 1) for texts in left)]


def tensor_parallel_traffic(
    config: GPTConfig, tp: int, calls: Iterable[ModelPass], *, element_bytes: int = 4
) -> dict[str, TrafficSum]:
    """What each rank of a tensor-parallel group calls, by operation: "all_reduce", "all_gather".

    Of n bytes of an all-reduce a rank sends 2 n (t-1)/t in a ring, of n bytes that it gives to an all-gather n (t-1).

    **Communication** and **Memory**: none.

    Args:
        config: of the whole model.
        tp: t.
        calls: of the model, such as `passes(requests)`.
        element_bytes: e.

    Returns:
        Of one rank: calls, and the bytes that it hands in. With one rank nothing.
    """
    divide(config.num_heads, tp, "heads")
    if tp == 1:
        return {}
    calls = list(calls)
    per_pass = 2 * config.num_layers + 1
    tokens, texts = sum(call.texts * call.tokens for call in calls), sum(call.texts for call in calls)
    rows = padded_vocabulary(config.vocab_size, tp) // tp
    return {
        "all_reduce": TrafficSum(per_pass * len(calls), per_pass * tokens * config.hidden_size * element_bytes),
        "all_gather": TrafficSum(len(calls), texts * rows * element_bytes),
    }


def pipeline_traffic(
    config: GPTConfig, num_stages: int, groups: Sequence[Sequence[GenerationRequest]], *, element_bytes: int = 4
) -> dict[str, TrafficSum]:
    """What all stages of a pipeline send: "activations" to the next stage, "tokens" from the last stage to the first.

    Args:
        config: of the whole model.
        num_stages: p.
        groups: requests that pass through together.
        element_bytes: e.
    """
    if num_stages == 1:
        return {"activations": TrafficSum(0, 0), "tokens": TrafficSum(0, 0)}
    calls = [call for group in groups for call in passes(group)]
    positions = sum(call.texts * call.tokens for call in calls)
    # The last token of a text is not sent back, and in the round after it the text is not there.
    back = [
        sum(request.max_new_tokens > number for request in group)
        for group in groups
        for number in range(1, max(request.max_new_tokens for request in group))
    ]
    hops = num_stages - 1
    return {
        "activations": TrafficSum(hops * len(calls), hops * positions * config.hidden_size * element_bytes),
        "tokens": TrafficSum(len(back), sum(back) * TOKEN_BYTES),
    }


def pipeline_ticks(num_stages: int, num_groups: int, num_rounds: int) -> int:
    """Passes of a stage from the first to the last token, if all passes are equally long and messages take no time.

    A group's next token starts when its last one is back, p ticks later; with m >= p groups in flight the stages are
    busy instead, m ticks for a token of each. So (K - 1) max(m, p) + m - 1 + p ticks for K rounds: with m = 1 a stage
    works 1 tick of p, with m = p all the time.

    Args:
        num_stages: p.
        num_groups: m.
        num_rounds: K, tokens of each text.
    """
    return (num_rounds - 1) * max(num_groups, num_stages) + num_groups - 1 + num_stages
