"""No pipeline at all: a micro-batch goes through the whole model and back before the next one enters."""

from __future__ import annotations

from collections.abc import Iterator

from ..actions import Action, Op


def naive(rank: int, num_ranks: int, num_microbatches: int) -> Iterator[Action]:
    """One rank works at a time: with m = 1 naive model parallelism, else accumulation in it.

    **Communication**: m messages to the next rank, m back.
    **Memory**: the activations of 1 micro-batch.
    """
    for microbatch in range(num_microbatches):
        yield Action(rank, Op.F, microbatch)
        yield Action(rank, Op.B, microbatch)
