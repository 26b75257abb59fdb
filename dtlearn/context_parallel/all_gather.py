"""All-gather attention: each rank fetches all keys and values first, and then computes its queries at once.

It is the simple way, and a real one: Llama 3 was trained with it. K and V have H_kv heads of H, few under grouped-query
attention, and a mask of documents is simple, since all keys are there. A rank sends as much as in a ring; but nothing
is computed meanwhile, and every rank keeps all keys and values.

Keys stay in the order of the ranks: the blocks are those of a ring, and say which part of the mask each is.

Shapes in this file:
    B  batch    H  query heads    H_kv  key-value heads    T/cp  tokens of a rank    D  head size    cp  ranks

Source: the Llama 3 Team, 2407.21783, section 3.3.2.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from dtlearn.sharing.differentiable import gather_from
from dtlearn.sharing.shards import rank_and_size

from .block_attention import check_tensors
from .blockwise import blockwise_attention
from .token_layout import AttentionBlock, TokenLayout, block_between, check_length


def all_gather_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    layout: TokenLayout = "zigzag",
    is_causal: bool = True,
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    """Attention of this rank's queries to the keys of all ranks: (B, H, T/cp, D) -> (B, H, T/cp, D).

    **Communication**: forward one all-gather of K and V together, 2 B H_kv T D elements in the result, of which a rank
    sends (cp-1)/cp; backward one reduce-scatter of their gradients, of as many, in the dtype of k.
    **Memory**: for backward the keys and values of all ranks, beside q and the output: this part does not shrink.

    Args:
        q, k, v, layout, is_causal, group: as for `ring_attention`.

    Raises:
        ValueError: as there.
    """
    check_tensors(q, k, v)
    rank, num_ranks = rank_and_size(group)
    each = q.shape[2]
    check_length(each * num_ranks, num_ranks, layout)  # before anything is sent
    key_value = torch.stack([k, v])  # (2, B, H_kv, T/cp, D)
    # Each rank's queries use all keys, so each has a term of their gradients: partial ones.
    key_value = gather_from(key_value, 3, partial_gradients=True, group=group)  # (2, B, H_kv, T, D)
    blocks: list[AttentionBlock | None] = []
    for source in sorted(range(num_ranks), key=lambda source: source != rank):  # its own first: it has all queries
        block = block_between(rank, source, num_ranks, each * num_ranks, layout, is_causal=is_causal)
        if block is not None:
            start, stop = block.keys
            blocks.append(block._replace(keys=(source * each + start, source * each + stop)))
    return blockwise_attention(q, key_value, blocks)
