"""The number of heads that a rank has. Heads do not look at each other, so they can be divided; a head itself is not.

In multi-head attention each query head has a key-value head of its own. In grouped-query attention H / H_kv
neighbouring query heads share one, and in multi-query attention all of them do. With fewer key-value heads than ranks,
neighbouring ranks hold copies of one:

    H = 8, H_kv = 2, t = 4          rank 0      rank 1      rank 2      rank 3
    query heads                     0 1         2 3         4 5         6 7
    key-value heads                 0           0           1           1        copies = 2

Sources: Shazeer, 1911.02150 (multi-query); Ainslie et al., "GQA", 2305.13245. Copies of key-value heads:
`GQAQKVColumnParallelLinear` in AWS's neuronx-distributed. Megatron-LM makes no copies: it divides the rows of a head,
and gathers q, k and v of the group in each forward pass.
"""

from __future__ import annotations

from typing import NamedTuple

from dtlearn.sharing.shards import divide


class Heads(NamedTuple):
    """The heads of one rank.

    Attributes:
        query: H/t.
        key_value: H_kv/t, or 1 where there are fewer of them than ranks.
        copies: ranks that have the same key-value heads, neighbours; 1: each rank has its own.
    """

    query: int
    key_value: int
    copies: int


def divide_heads(num_heads: int, num_kv_heads: int, num_ranks: int) -> Heads:
    """The share that each rank has of H query heads and H_kv key-value heads.

    **Communication** and **Memory**: none.

    Args:
        num_heads: H.
        num_kv_heads: H_kv; H in multi-head attention.
        num_ranks: t.

    Raises:
        ValueError: query heads cannot share the key-value heads evenly, or the ranks cannot share either.
    """
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(
            f"{num_heads} query heads cannot share {num_kv_heads} key-value heads: as many for each of them; H is a "
            "multiple of H_kv"
        )
    query = divide(num_heads, num_ranks, "heads")
    if num_kv_heads >= num_ranks:
        return Heads(query, divide(num_kv_heads, num_ranks, "key-value heads"), 1)
    if num_ranks % num_kv_heads:
        raise ValueError(
            f"{num_kv_heads} key-value heads cannot be copied to {num_ranks} ranks evenly: {num_ranks} = "
            f"{num_ranks // num_kv_heads} * {num_kv_heads} + {num_ranks % num_kv_heads}. Choose a group of a multiple "
            f"of {num_kv_heads} ranks, or of a divisor of it"
        )
    return Heads(query, 1, num_ranks // num_kv_heads)
