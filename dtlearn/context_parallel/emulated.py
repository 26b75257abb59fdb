"""Attention that takes time and no processor: its blocks sleep. For pictures of overlap, on a machine with few cores.

Ranks that share cores take turns, and one that computes delays what another one sends. Where blocks sleep, the messages
stay real, on an emulated link as on a cluster, and only the values are gone: outputs and gradients are 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from . import blockwise, ring, ulysses
from .block_attention import PartialAttention
from .token_layout import AttentionBlock


@contextmanager
def emulated_attention(pair_seconds: float, *, overlap: bool = True) -> Iterator[None]:
    """In this block, attention sleeps as long as its pairs of tokens would take; backward 2.5 times as long.

    **Communication**: that of the methods. **Memory**: as theirs.

    Args:
        pair_seconds: of a query and a key that it attends to, in one head, forward.
        overlap: False: a ring waits for each hop before it goes on, the naive way.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> PartialAttention:
        time.sleep(_pairs(q, k, is_causal) * pair_seconds)
        return PartialAttention(torch.zeros_like(q), q.new_zeros(q.shape[:-1]))

    def attend_backward(
        gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, whole: PartialAttention, *, is_causal: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        time.sleep(2.5 * _pairs(q, k, is_causal) * pair_seconds)
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)

    def undivided(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, enable_gqa: bool) -> Tensor:
        block = AttentionBlock((0, q.shape[2]), (0, k.shape[2]), is_causal)
        return blockwise.blockwise_attention(q, torch.stack([k, v]), [block])

    def hop(tensor: Tensor, **options: Any) -> Callable[[], Tensor]:
        arrived = start_hop(tensor, **options)()
        return lambda: arrived

    start_hop = ring.start_hop
    replacements: list[tuple[Any, str, Any]] = [
        (blockwise, "attend", attend),
        (blockwise, "attend_backward", attend_backward),
        (ulysses, "scaled_dot_product_attention", undivided),
        (ring, "start_hop", start_hop if overlap else hop),
    ]
    before = [getattr(module, name) for module, name, _ in replacements]
    try:
        for module, name, replacement in replacements:
            setattr(module, name, replacement)
        yield
    finally:
        for (module, name, _), original in zip(replacements, before, strict=True):
            setattr(module, name, original)


def _pairs(q: Tensor, k: Tensor, is_causal: bool) -> int:
    """Pairs of a query and a key that attend to each other, in all heads and sequences together."""
    return AttentionBlock((0, q.shape[2]), (0, k.shape[2]), is_causal).pairs * q.shape[0] * q.shape[1]
