"""Query, key and value from one fused weight, head by head.

Many models compute q, k and v in one product: one weight of (H + 2 H_kv) D rows, for heads of size D. Its rows come in
one of two layouts. With H = 4 and H_kv = 2, where qi is D rows:

    blocks    q0 q1 q2 q3 | k0 k1 | v0 v1                 GPT-2, Phi-3
    groups    q0 q1 k0 v0 | q2 q3 k1 v1                   Megatron-LM, GPT-NeoX and BLOOM (H_kv = H)

Cut into t contiguous parts, blocks give rank 0 of 2 nothing but query heads: it takes some of them for keys and values.
All shapes fit, and there is no error. Groups may be cut that way: each has all that its heads need, which is why
Megatron-LM has this layout.

Source: Megatron-LM, `core/transformer/attention.py`. (GPT-2's published weights are transposed: (in, out).)
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

FusedLayout = Literal["blocks", "groups"]


class QKV(NamedTuple):
    """Whole weights, (H D, C), (H_kv D, C) and (H_kv D, C), or biases without the last dim."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


def split_fused_qkv(
    fused: torch.Tensor,
    num_heads: int,
    *,
    num_kv_heads: int | None = None,
    layout: FusedLayout = "blocks",
) -> QKV:
    """The three weights (or biases) of a whole fused one, rows in the order of the heads.

    Each can be divided along dim 0 then: its parts are whole heads.

    **Communication**: none. **Memory**: views of `fused` for blocks, copies for groups.

    Args:
        fused: ((H + 2 H_kv) D, C), or ((H + 2 H_kv) D,).
        num_heads: H.
        num_kv_heads: H_kv; None: H.
        layout: of its rows.

    Raises:
        ValueError: the rows are not those of so many heads, or there is no such layout.
    """
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    _require(layout, num_heads, kv_heads)
    if len(fused) % (num_heads + 2 * kv_heads):
        raise ValueError(
            f"{num_heads} query, {kv_heads} key and {kv_heads} value heads have a multiple of "
            f"{num_heads + 2 * kv_heads} rows; the fused weight has {len(fused)}"
        )
    heads = fused.unflatten(0, (num_heads + 2 * kv_heads, -1))  # (H + 2 H_kv, D, ...)
    if layout == "blocks":
        q, k, v = heads.split([num_heads, kv_heads, kv_heads])
        return QKV(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1))
    groups = heads.unflatten(0, (kv_heads, -1))  # (H_kv, H / H_kv + 2, D, ...)
    q, k, v = groups.split([num_heads // kv_heads, 1, 1], dim=1)
    return QKV(q.flatten(0, 2), k.flatten(0, 2), v.flatten(0, 2))


def fuse_qkv(
    whole: QKV, num_heads: int, *, num_kv_heads: int | None = None, layout: FusedLayout = "blocks"
) -> torch.Tensor:
    """The fused weight (or bias) of three: what `split_fused_qkv` takes apart.

    **Communication**: none. **Memory**: the fused weight.

    Args:
        whole: of all heads.
        num_heads, num_kv_heads, layout: as there.

    Raises:
        ValueError: there is no such layout, or H_kv does not divide H.
    """
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    _require(layout, num_heads, kv_heads)
    if layout == "blocks":
        return torch.cat(whole)
    by_group = [x.unflatten(0, (kv_heads, -1)) for x in whole]  # (H_kv, H / H_kv D, ...), then (H_kv, D, ...) twice
    return torch.cat(by_group, dim=1).flatten(0, 1)


def _require(layout: str, num_heads: int, kv_heads: int) -> None:
    if layout not in ("blocks", "groups"):
        raise ValueError(f'layout must be "blocks" or "groups", got {layout!r}')
    if kv_heads < 1 or num_heads % kv_heads:
        raise ValueError(f"{num_heads} query heads cannot share {kv_heads} key-value heads: H is a multiple of H_kv")
