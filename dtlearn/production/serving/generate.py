"""Texts from a model: naively, the whole text again for each token, and with a cache.

A pass over a prompt is called *prefill*, the passes for one token each *decode*. Prompts have different lengths, so
each is prefilled by itself; then all texts that are not done decode together, a token each.

Source of the words: Agrawal et al., "Sarathi-Serve", 2403.02310, section 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dtlearn.models import GPT
from dtlearn.tensor_parallel.gpt import ParallelGPT
from dtlearn.tensor_parallel.mappings import gather_from_tensor_parallel_region

from .cached_model import CachedGPT
from .kv_cache import KVCache
from .requests import GenerationRequest, require_room
from .sampling import next_token


def cache_for(model: GPT | ParallelGPT, num_slots: int, length: int | None = None) -> KVCache:
    """An empty cache with this rank's heads, where the model is and as it computes."""
    tp = model.num_ranks if isinstance(model, ParallelGPT) else 1
    weight = model.head.norm.weight
    return KVCache(model.config, num_slots, length, tp=tp, dtype=weight.dtype, device=weight.device)


def generate(
    model: GPT | ParallelGPT, requests: Sequence[GenerationRequest], *, cached: bool = True
) -> list[list[int]]:
    """The new tokens of each request.

    **Communication**: of a `ParallelGPT` see `traffic.tensor_parallel_traffic`; all ranks of its group call it, and get
    the same texts: they have the same logits, of an all-gather, and draw with the same seeds.
    **Memory**: with a cache `cache_bytes`, as long as the longest text.

    Args:
        model: in evaluation mode.
        requests: the same on all ranks.
        cached: False: the naive way, a pass over the whole text for each token.

    Raises:
        ValueError: no request, or a text longer than the model's context.
    """
    require_room(requests, model.config.context_length)
    return _with_cache(model, requests) if cached else [_without_cache(model, request) for request in requests]


@torch.no_grad()
def _without_cache(model: GPT | ParallelGPT, request: GenerationRequest) -> list[int]:
    """The new tokens of a request in the naive way: token n costs a pass over n tokens."""
    device, new = model.head.norm.weight.device, list[int]()
    while not request.is_done(new):
        tokens = torch.tensor([[*request.prompt, *new]], device=device)  # (1, n)
        logits = model(tokens)[:, -1]  # (1, V/t)
        if isinstance(model, ParallelGPT):
            logits = gather_from_tensor_parallel_region(logits, group=model.group)[..., : model.config.vocab_size]
        new.append(next_token(logits[0], request, len(new)))
    return new


def _with_cache(model: GPT | ParallelGPT, requests: Sequence[GenerationRequest]) -> list[list[int]]:
    cached = CachedGPT(model, cache_for(model, len(requests), max(request.length for request in requests)))
    texts = [[prefill(cached, request, slot)] for slot, request in enumerate(requests)]
    while alive := [n for n, request in enumerate(requests) if not request.is_done(texts[n])]:
        new = decode(cached, [requests[n] for n in alive], [texts[n] for n in alive], alive)
        for n, token in zip(alive, new, strict=True):
            texts[n].append(token)
    return texts


def prefill(model: CachedGPT, request: GenerationRequest, slot: int) -> int:
    """Pass once over the prompt, which fills the request's slot. Returns the first new token."""
    logits = model(*prompt_inputs(model, request, slot))  # (1, V)
    return next_token(logits[0], request, 0)


def decode(
    model: CachedGPT, requests: Sequence[GenerationRequest], texts: Sequence[list[int]], slots: Sequence[int]
) -> list[int]:
    """The next token of each text, in one pass.

    Args:
        model: with its cache.
        requests: B of them.
        texts: the new tokens of each so far, at least one.
        slots: of each in the cache.
    """
    logits = model(*last_token_inputs(model, requests, texts, slots))  # (B, V)
    return [next_token(row, request, len(text)) for row, request, text in zip(logits, requests, texts, strict=True)]


def prompt_inputs(
    model: CachedGPT, request: GenerationRequest, slot: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens (1, T), positions (1, T) and slot (1,) of a prompt."""
    device = model.device
    tokens = torch.tensor([request.prompt], device=device)
    return tokens, torch.arange(tokens.shape[1], device=device)[None], torch.tensor([slot], device=device)


def last_token_inputs(
    model: CachedGPT, requests: Sequence[GenerationRequest], texts: Sequence[list[int]], slots: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens (B, 1), positions (B, 1) and slots (B,) of the last token of each text."""
    tokens = torch.tensor([[text[-1]] for text in texts], device=model.device)
    places = [[len(request.prompt) + len(text) - 1] for request, text in zip(requests, texts, strict=True)]
    return tokens, torch.tensor(places, device=model.device), torch.tensor(slots, device=model.device)
