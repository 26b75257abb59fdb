"""Interleaved 1F1B, Megatron's (2104.04473, section 2.2): a rank has several stages, a p-th of the model apart.

A rank's stages are called chunks. Micro-batches go in groups of p: a rank does a group's forward passes in its first
chunk, then in its second, and so on; the group is then back at rank 0 each time, just when rank 0 is done with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..actions import Action, Op


def interleaved(rank: int, num_ranks: int, num_microbatches: int, chunks: int) -> Iterator[Action]:
    """1F1B over `chunks` times as many passes, each through a stage that is so many times smaller.

    **Communication**: `chunks` times that of 1F1B, with the last rank sending to the first.
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
