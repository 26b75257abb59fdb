"""Interleaved 1F1B, Megatron's (2104.04473, section 2.2): rank r has stages r, p + r, 2p + r and so on, its chunks.

Micro-batches go in groups of p. A rank does a group's forward passes in its first chunk, then in its second, and so on.
A group's first micro-batch comes back to rank 0 just when rank 0 has sent the group's last one off.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..actions import Action, Op


def interleaved(rank: int, num_ranks: int, num_microbatches: int, chunks: int) -> Iterator[Action]:
    """1F1B over `chunks` times as many passes, each through a stage that is so many times smaller.

    **Communication**: about `chunks` times that of 1F1B; the last rank sends to the first, too.
    **Memory**: rank 0 keeps more than in 1F1B, by a factor of 1 + (p - 1) / (p * chunks).
    """

    def action(number: int, op: Op) -> Action:
        group, place = divmod(number, num_ranks * chunks)
        chunk, microbatch = divmod(place, num_ranks)
        if op == Op.B:
            chunk = chunks - 1 - chunk  # backward begins at the end of the model
        return Action(chunk * num_ranks + rank, op, group * num_ranks + microbatch)

    passes = num_microbatches * chunks
    warmup = min(2 * (num_ranks - 1 - rank) + (chunks - 1) * num_ranks, passes)
    yield from (action(number, Op.F) for number in range(warmup))
    for number in range(warmup, passes):
        yield action(number, Op.F)
        yield action(number - warmup, Op.B)
    yield from (action(number, Op.B) for number in range(passes - warmup, passes))
