"""Whose row a token has: a vocabulary of V tokens in t even parts, padded if need be.

Rank r has the tokens from r V/t to (r + 1) V/t - 1. If t does not divide V, rows are added behind the last token, which
no token uses: they are padding, and must not be seen by the softmax.
"""

from __future__ import annotations

import torch


def padded_vocabulary(vocab_size: int, num_ranks: int) -> int:
    """The smallest multiple of `num_ranks` that is not below `vocab_size`: 50,257 tokens on 4 ranks have 50,260 rows.

    Megatron-LM pads to a multiple of 128 t, so that each rank's matrix product has a width that is fast on a GPU.

    **Communication** and **Memory**: none.

    Args:
        vocab_size: V.
        num_ranks: t.

    Raises:
        ValueError: one of them is below 1.
    """
    if vocab_size < 1 or num_ranks < 1:
        raise ValueError(f"a vocabulary has 1 token or more, and 1 rank or more; got {vocab_size} and {num_ranks}")
    return -(-vocab_size // num_ranks) * num_ranks


def local_rows(tokens: torch.Tensor, rows: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The row of each token on this rank, and whether the token is this rank's own.

        local_rows([3, 4, 9], rows=4, rank=1)  ->  [0, 0, 0], [False, True, False]

    **Communication**: none.
    **Memory**: 9 bytes for each token.

    Args:
        tokens: of any shape, int64.
        rows: V/t, on each rank.
        rank: in the group.

    Returns:
        Two tensors of that shape: rows from 0 to V/t - 1, which are 0 for tokens of other ranks; and bool.
    """
    is_own = (tokens >= rank * rows) & (tokens < (rank + 1) * rows)
    # Row 0 stands for a foreign token: some row of this rank must be read, and the mask takes the value out again.
    return (tokens - rank * rows).masked_fill(~is_own, 0), is_own


def require_tokens(tokens: torch.Tensor, vocab_size: int, what: str, ignore_index: int | None = None) -> None:
    """Check that there is a row for each token. Every rank has all tokens, and so every rank raises.

    Without it, a token that no rank owns would be masked on all ranks: an embedding of zeros, a loss without a target.

    **Communication**: none; on a GPU the check waits for the tokens.
    **Memory**: none that stays.

    Args:
        tokens: of any shape.
        vocab_size: V, without padding.
        what: for the error, such as "target".
        ignore_index: a value that is allowed beside them.

    Raises:
        ValueError: they are not integers, or one is not from 0 to V - 1.
    """
    if tokens.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"each {what} must be the number of a token, int64; got {tokens.dtype}")
    outside = (tokens < 0) | (tokens >= vocab_size)
    if ignore_index is not None:
        outside &= tokens != ignore_index
    if outside.any():
        ignored = "" if ignore_index is None else f", or {ignore_index} to be ignored"
        raise ValueError(
            f"{what} {tokens[outside][0].item()} is outside the vocabulary of {vocab_size} tokens: a {what} is from 0 "
            f"to {vocab_size - 1}{ignored}"
        )
