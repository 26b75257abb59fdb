"""Attention block by block: the blocks of one rank, one after the other, as they come or all at once.

Ring and all-gather attention compute the same blocks of the mask; they differ in how the keys come to the rank. With
all keys there, `blockwise_attention` is a loop over the blocks. Blocks that are all masked are not in it: nothing is
computed for them, and no query meets a block in which it attends to nothing. Nothing is sent here.

Shapes in this file:
    B  batch    H  query heads    H_kv  key-value heads    Tq, Tk  queries, keys    D  head size
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .block_attention import PartialAttention, accumulation_dtype, attend, attend_backward, merge
from .token_layout import AttentionBlock


def add_block(
    so_far: PartialAttention | None, q: Tensor, key_value: Tensor, block: AttentionBlock | None
) -> PartialAttention | None:
    """Attention to the keys up to now, and to those of one block more.

    **Memory**: that of `attend`; `so_far` is changed in place where the block has queries.

    Args:
        so_far: None: no block up to now. The first one has all queries.
        q: (B, H, Tq, D).
        key_value: (2, B, H_kv, Tk, D).
        block: which of the queries attend to which of the keys; None: none, and nothing is added.
    """
    if block is None:
        return so_far
    queries, keys = slice(*block.queries), slice(*block.keys)
    part = attend(q[:, :, queries], *key_value[:, :, :, keys], is_causal=block.is_causal)
    if so_far is None:
        return part
    merged = merge(PartialAttention(so_far.out[:, :, queries], so_far.lse[:, :, queries]), part)
    so_far.out[:, :, queries], so_far.lse[:, :, queries] = merged
    return so_far


def add_block_gradients(
    of_q: Tensor,
    of_key_value: Tensor,
    gradient: Tensor,
    q: Tensor,
    key_value: Tensor,
    whole: PartialAttention,
    block: AttentionBlock | None,
) -> None:
    """Add the terms of one block to the gradients, in place.

    **Memory**: that of `attend_backward`.

    Args:
        of_q, of_key_value: shaped as q and key_value, in the dtype of sums.
        gradient: of the output, (B, H, Tq, D).
        q, key_value, block: as in forward.
        whole: attention to the keys of all blocks.
    """
    if block is None:
        return
    queries, keys = slice(*block.queries), slice(*block.keys)
    own_whole = PartialAttention(whole.out[:, :, queries], whole.lse[:, :, queries])
    own_keys, own_values = key_value[:, :, :, keys]
    q_term, k_term, v_term = attend_backward(
        gradient[:, :, queries], q[:, :, queries], own_keys, own_values, own_whole, is_causal=block.is_causal
    )
    of_q[:, :, queries] += q_term
    of_key_value[0, :, :, keys] += k_term
    of_key_value[1, :, :, keys] += v_term


def blockwise_attention(q: Tensor, key_value: Tensor, blocks: Sequence[AttentionBlock | None]) -> Tensor:
    """Attention in these blocks, all keys being there: (B, H, Tq, D) -> (B, H, Tq, D).

    **Memory**: for backward q, the keys and values, the output and a number per query and head.

    Args:
        q: (B, H, Tq, D).
        key_value: (2, B, H_kv, Tk, D).
        blocks: which have no pair of a query and a key in common; one has all queries, the first that is not None.
    """
    out: Tensor = BlockwiseAttention.apply(q, key_value, tuple(blocks))
    return out


class BlockwiseAttention(torch.autograd.Function):
    """See `blockwise_attention`."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, key_value: Tensor, blocks: tuple[AttentionBlock | None, ...]) -> Tensor:
        """Attend to one block after the other."""
        so_far: PartialAttention | None = None
        for block in blocks:
            so_far = add_block(so_far, q, key_value, block)
        assert so_far is not None
        out = so_far.out.to(q.dtype)
        ctx.blocks = blocks
        ctx.save_for_backward(q, key_value, out, so_far.lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        """Go through the same blocks, each with the log-sum-exp of all."""
        q, key_value, out, lse = ctx.saved_tensors
        sums = accumulation_dtype(q.dtype)
        of_q, of_key_value = (torch.zeros_like(x, dtype=sums) for x in (q, key_value))
        for block in ctx.blocks:
            add_block_gradients(of_q, of_key_value, gradient, q, key_value, PartialAttention(out, lse), block)
        return of_q.to(q.dtype), of_key_value.to(q.dtype), None
