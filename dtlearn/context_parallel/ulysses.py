"""Ulysses: all-to-alls around attention exchange tokens for heads, so that each rank has some heads of all tokens.

    q, k, v   (B, H, T/cp, D)  --all-to-all-->  (B, H/cp, T, D)      whole sequences: any attention, undivided
    out       (B, H/cp, T, D)  --all-to-all-->  (B, H, T/cp, D)

A rank sends (cp-1)/cp of its own four tensors, so the more ranks, the less each sends; in a ring a rank sends K and V
of nearly the whole sequence. In return cp is at most the number of heads, and nothing hides the all-to-alls. All heads
have the same work, under every layout.

Shapes in this file:
    B  batch    H  query heads    H_kv  key-value heads    T/cp  tokens of a rank    D  head size    cp  ranks

Source: Jacobs et al., "DeepSpeed Ulysses", 2309.14509, section 3.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from dtlearn.sharing.differentiable import all_to_all
from dtlearn.sharing.shards import divide, rank_and_size

from .block_attention import check_tensors
from .token_layout import TokenLayout, check_length, global_order

HEADS, TOKENS = 1, 2  # dims


def ulysses_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    layout: TokenLayout = "zigzag",
    is_causal: bool = True,
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    """Attention of this rank's queries to the keys of all ranks: (B, H, T/cp, D) -> (B, H, T/cp, D).

    **Communication**: forward four all-to-alls, of q, k, v and the output, and backward as many; of n bytes in a tensor
    a rank sends n (cp-1)/cp. With fewer key-value heads than ranks k and v are sent as if they had cp.
    **Memory**: for backward q, k, v and the output of T tokens and H/cp heads: as much as of T/cp tokens and H heads.

    Args:
        q, k, v, layout, is_causal, group: as for `ring_attention`; here cp divides H, and H_kv or the other way round.

    Raises:
        ValueError: the heads or the tokens do not fit.
    """
    check_tensors(q, k, v)
    _, num_ranks = rank_and_size(group)
    length, num_kv_heads = q.shape[TOKENS] * num_ranks, k.shape[HEADS]
    check_length(length, num_ranks, layout)
    divide(q.shape[HEADS], num_ranks, "query heads")
    if num_kv_heads < num_ranks and num_ranks % num_kv_heads == 0:
        # A head for each rank: copies, whose gradients autograd adds up.
        k, v = (x.repeat_interleave(num_ranks // num_kv_heads, HEADS) for x in (k, v))
    divide(k.shape[HEADS], num_ranks, "key-value heads")
    q, k, v = (all_to_all(x, HEADS, TOKENS, group=group) for x in (q, k, v))  # (B, H/cp, T, D)
    is_permuted = (
        layout != "contiguous" and is_causal and num_ranks > 1
    )  # the ranks' tokens come one rank after the other
    if is_permuted:
        order = global_order(length, num_ranks, layout, device=q.device)
        q, k, v = (x.index_select(TOKENS, order) for x in (q, k, v))
    out = scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=True)
    if is_permuted:
        out = out.index_select(TOKENS, order.argsort())
    return all_to_all(out, TOKENS, HEADS, group=group)  # (B, H, T/cp, D)
