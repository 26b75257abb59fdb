"""1F1B with a flush, the schedule of Megatron (2104.04473, section 2.2) and of PipeDream-Flush (2006.09503).

Megatron counts as warm-up the forward passes before the first pair of a forward and a backward pass, p - 1 - rank;
torch counts those before the first backward pass, one more. The order is the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..actions import Action, Op


def one_f_one_b(rank: int, num_ranks: int, num_microbatches: int) -> Iterator[Action]:
    """As many forward passes as there are ranks after this one, then one forward, one backward.

    **Communication**: as in GPipe: m messages to the next rank, m back.
    **Memory**: the activations of min(m, p - rank) micro-batches.
    """
    warmup = min(num_ranks - 1 - rank, num_microbatches)
    for microbatch in range(warmup):
        yield Action(rank, Op.F, microbatch)
    for microbatch in range(warmup, num_microbatches):
        yield Action(rank, Op.F, microbatch)
        yield Action(rank, Op.B, microbatch - warmup)
    for microbatch in range(num_microbatches - warmup, num_microbatches):
        yield Action(rank, Op.B, microbatch)
