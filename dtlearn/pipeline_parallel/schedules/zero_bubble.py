"""Zero bubble schedules H1 and H2 (2401.10241, section 2): the backward pass is split, and W fills the idle time.

The stage before waits only for the gradient of the inputs, I; the gradient of the weights, W, can come later. torch has
H1, as ScheduleInterleavedZeroBubble with one stage on each rank.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..actions import Action, Op


def zb_h1(rank: int, num_ranks: int, num_microbatches: int) -> Iterator[Action]:
    """1F1B with split backward passes: on rank r, W comes r micro-batches after I.

    In 1F1B, rank r keeps r activations fewer than rank 0: here it uses that memory for W.

    **Communication**: that of 1F1B.
    **Memory**: the activations of min(m, p) micro-batches on every rank.
    """
    return late_weights(rank, num_ranks - 1 - rank, rank, num_microbatches)


def zb_h2(rank: int, num_ranks: int, num_microbatches: int) -> Iterator[Action]:
    """Twice H1's warm-up: with F = I = W, a rank that has begun is not idle before it is done.

    **Communication**: that of 1F1B.
    **Memory**: the activations of min(m, 2p - 1) micro-batches on every rank.
    """
    return late_weights(rank, 2 * (num_ranks - 1 - rank), 2 * rank, num_microbatches)


def late_weights(stage: int, warmup: int, delay: int, num_microbatches: int) -> Iterator[Action]:
    """Round i has F of micro-batch i + warmup, I of i and W of i - delay, as far as they exist.

    **Communication**: m messages to the next rank, m back, where stage r is on rank r.
    **Memory**: the activations of min(m, warmup + delay + 1) micro-batches.
    """
    for i in range(-warmup, num_microbatches + delay):
        for op, microbatch in ((Op.F, i + warmup), (Op.I, i), (Op.W, i - delay)):
            if 0 <= microbatch < num_microbatches:
                yield Action(stage, op, microbatch)
