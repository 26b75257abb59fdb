"""GPipe (1811.06965): all forward passes, then all backward passes.

In the paper's figure the backward passes run from the last micro-batch to the first; here, as in torch, from the first
to the last. The idle time and the memory are the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..actions import Action, Op


def gpipe(rank: int, num_ranks: int, num_microbatches: int) -> Iterator[Action]:
    """Every rank does the same, one clock after the rank before it.

    **Communication**: m messages to the next rank, m back.
    **Memory**: the activations of all m micro-batches.
    """
    for microbatch in range(num_microbatches):
        yield Action(rank, Op.F, microbatch)
    for microbatch in range(num_microbatches):
        yield Action(rank, Op.B, microbatch)
