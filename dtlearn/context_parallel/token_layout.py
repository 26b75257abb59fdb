"""Which tokens of a sequence each rank has, and how much attention they cost there: plain data. Nothing is sent.

A sequence of T tokens is cut into chunks of one length. Chunk by chunk, for 4 ranks:

    contiguous    0 0 1 1 2 2 3 3    rank r has one chunk of T/cp tokens
    zigzag        0 1 2 3 3 2 1 0    rank r has the chunks r and 2cp-1-r, of T/2cp tokens

Under a causal mask a token attends to all before it, so late tokens cost more than early ones. Contiguous, the last
rank has about 2cp-1 times the work of the first; zigzag gives each rank an early chunk and a late one, and all have the
same.

Shapes: T tokens of a sequence, cp ranks; each rank has T/cp tokens.

Source: the Llama 3 Team, "The Llama 3 Herd of Models", 2407.21783, section 3.3.2 (2 cp chunks, rank i has chunks i and
2cp-1-i); Brandon et al., "Striped Attention", 2311.09431, balances by single tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
import torch.distributed as dist

from dtlearn.sharing.shards import rank_and_size

TokenLayout = Literal["contiguous", "zigzag"]
LAYOUTS = ("contiguous", "zigzag")


class AttentionBlock(NamedTuple):
    """What a rank computes with the keys and values of one rank: a rectangle of the mask, or a triangle.

    Attributes:
        queries: local tokens [start, stop) of this rank that attend.
        keys: local tokens [start, stop) of the other rank that they attend to.
        is_causal: query i attends to the keys up to i; False: to all.
    """

    queries: tuple[int, int]
    keys: tuple[int, int]
    is_causal: bool

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it attends to."""
        num_queries, num_keys = (stop - start for start, stop in (self.queries, self.keys))
        return num_queries * (num_queries + 1) // 2 if self.is_causal else num_queries * num_keys


def check_length(length: int, num_ranks: int, layout: TokenLayout = "zigzag") -> None:
    """Check that a sequence can be cut into chunks of one length.

    Args:
        length: T.
        num_ranks: cp.
        layout: zigzag has 2cp chunks, contiguous cp.

    Raises:
        ValueError: it cannot, or there is no such layout.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {' or '.join(map(repr, LAYOUTS))}; got {layout!r}")
    chunks = _num_chunks(num_ranks, layout)
    if num_ranks < 1 or length < 1 or length % chunks:
        raise ValueError(
            f"the {layout} layout cuts a sequence into {chunks} chunks of one length, for {num_ranks} ranks; got "
            f"{length} tokens. Pad the sequence to {max(-(-length // max(chunks, 1)), 1) * chunks} tokens, and let the "
            "padding's targets not count"
        )


def chunks_of(rank: int, num_ranks: int, layout: TokenLayout = "zigzag") -> tuple[int, ...]:
    """The numbers of a rank's chunks, in the order in which it has them; they rise.

    Args:
        rank: from 0.
        num_ranks: cp.
        layout: see `check_length`.

    Raises:
        ValueError: there is no such rank.
    """
    if not 0 <= rank < num_ranks:
        raise ValueError(f"{num_ranks} ranks are numbered 0 to {num_ranks - 1}; got rank {rank}")
    return (rank, 2 * num_ranks - 1 - rank) if layout == "zigzag" else (rank,)


def token_positions(
    length: int,
    num_ranks: int,
    rank: int,
    layout: TokenLayout = "zigzag",
    *,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """Where a rank's tokens stand in the whole sequence, (T/cp,) int64: for position embeddings, and for the mask.

    **Memory**: the positions.

    Args:
        length: T, of the whole sequence.
        num_ranks, rank: cp, and which of them.
        layout: see `check_length`.
        device: of the result.

    Raises:
        ValueError: see `check_length` and `chunks_of`.
    """
    check_length(length, num_ranks, layout)
    each = length // _num_chunks(num_ranks, layout)
    parts = [
        torch.arange(chunk * each, (chunk + 1) * each, device=device) for chunk in chunks_of(rank, num_ranks, layout)
    ]
    return torch.cat(parts)


def shard_tokens(
    x: torch.Tensor, num_ranks: int, rank: int, *, dim: int = 1, layout: TokenLayout = "zigzag"
) -> torch.Tensor:
    """A rank's tokens of a tensor that has all: (B, T, ...) -> (B, T/cp, ...).

    Targets are shifted by one before they are cut: the target of a chunk's last token is in another chunk.

    **Memory**: the part; it does not refer to the whole.

    Args:
        x: tokens, targets or activations of the whole sequence.
        num_ranks, rank: cp, and which of them.
        dim: of the tokens.
        layout: see `check_length`.

    Raises:
        ValueError: see `check_length` and `chunks_of`.
    """
    return x.index_select(dim, token_positions(x.shape[dim], num_ranks, rank, layout, device=x.device))


def own_tokens(
    x: torch.Tensor, *, dim: int = 1, layout: TokenLayout = "zigzag", group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """`shard_tokens` for this rank of a group.

    **Memory**: the part.

    Args:
        x: the same on all ranks.
        dim, layout: as there.
        group: ranks that the tokens are divided among; None: all ranks.

    Raises:
        ValueError: see `check_length`.
    """
    rank, num_ranks = rank_and_size(group)
    return shard_tokens(x, num_ranks, rank, dim=dim, layout=layout)


def unshard_tokens(parts: Sequence[torch.Tensor], *, dim: int = 1, layout: TokenLayout = "zigzag") -> torch.Tensor:
    """The inverse of `shard_tokens`: all ranks' parts, in the order of the ranks -> (B, T, ...). Autograd sees it.

    **Memory**: the whole, twice for a moment.

    Args:
        parts: one of each rank.
        dim, layout: as there.
    """
    joined = torch.cat(list(parts), dim)
    return joined.index_select(dim, global_order(joined.shape[dim], len(parts), layout, device=joined.device))


def global_order(
    length: int, num_ranks: int, layout: TokenLayout = "zigzag", *, device: torch.device | str | None = None
) -> torch.Tensor:
    """Where, in all ranks' tokens one after the other, each token of the sequence stands, (T,) int64.

    **Memory**: T numbers, twice for a moment.

    Args:
        length, num_ranks, layout, device: as for `token_positions`.
    """
    positions = [token_positions(length, num_ranks, rank, layout, device=device) for rank in range(num_ranks)]
    return torch.cat(positions).argsort()


def block_between(
    rank: int,
    source: int,
    num_ranks: int,
    length: int,
    layout: TokenLayout = "zigzag",
    *,
    is_causal: bool = True,
) -> AttentionBlock | None:
    """Which of a rank's tokens attend to which of another rank's; None: none do.

    One rectangle is enough, since a rank's chunks are in the order of their positions:

        source = rank    all queries, all keys, causal: the order within the rank is the order in the sequence
        source < rank    zigzag: all queries attend to its early chunk, none to its late one; contiguous: all to all
        source > rank    zigzag: the late queries attend to both of its chunks, the early ones to none; contiguous: none

    Args:
        rank: which has the queries.
        source: which has the keys.
        num_ranks: cp.
        length: T.
        layout: see `check_length`.
        is_causal: False: every token attends to all.

    Raises:
        ValueError: see `check_length`.
    """
    check_length(length, num_ranks, layout)
    each = length // num_ranks
    half, all_tokens = each // 2, (0, each)
    if source == rank or not is_causal:
        return AttentionBlock(all_tokens, all_tokens, is_causal)
    if layout == "contiguous":
        return AttentionBlock(all_tokens, all_tokens, False) if source < rank else None
    if source < rank:
        return AttentionBlock(all_tokens, (0, half), False)
    return AttentionBlock((half, each), all_tokens, False)


def attended_pairs(
    length: int, num_ranks: int, layout: TokenLayout = "zigzag", *, is_causal: bool = True
) -> tuple[int, ...]:
    """How much work attention is on each rank: pairs of a query and a key that it attends to, of one head.

    A pair costs 4 D operations forward, two products of D numbers, and about 2.5 times as much backward.

    Args:
        length, num_ranks, layout, is_causal: as for `block_between`.
    """
    blocks = [
        [block_between(r, source, num_ranks, length, layout, is_causal=is_causal) for source in range(num_ranks)]
        for r in range(num_ranks)
    ]
    return tuple(sum(block.pairs for block in of_rank if block) for of_rank in blocks)


def imbalance(pairs: Sequence[int]) -> float:
    """The most work of a rank over the mean: 1 if all have the same. The slowest rank sets the pace.

    Args:
        pairs: of each rank.
    """
    return max(pairs) * len(pairs) / sum(pairs)


def _num_chunks(num_ranks: int, layout: TokenLayout) -> int:
    return 2 * num_ranks if layout == "zigzag" else num_ranks
