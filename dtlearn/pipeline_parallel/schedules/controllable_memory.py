"""V-Half and V-Min (2405.15362): V-shaped schedules that need, for many ranks, a half and a third of 1F1B's memory.

What one micro-batch does is a block of clocks, the same for every micro-batch, and each begins 6 clocks after the one
before it: F, I and W in two stages. How long a block keeps its activations decides the memory of all.
Offsets are those of the paper's authors, github.com/sail-sg/zero-bubble-pipeline-parallelism, zbv_greedy.py, without
their reordering of the first and last actions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ..actions import Action, Op


def v_half(rank: int, num_ranks: int, num_microbatches: int) -> Iterator[Action]:
    """The activations of (p + 2) // 2 micro-batches on each rank, where rank 0 of 1F1B has p.

    Where F, I and W take the same time, its idle time is two thirds of 1F1B's for 4 ranks, less for more.

    **Communication**: that of ZBV.
    **Memory**: 2 * ((p + 2) // 2) activations, each of a micro-batch in a stage; a stage is half of 1F1B's.
    """
    p, gap = num_ranks, 0 if num_ranks % 2 else 3
    return _repeat(
        (2 * rank, 3 * p - 2 - rank, 3 * p - 1 + gap + 2 * rank, 6 * p - 2 + gap - rank), rank, p, num_microbatches
    )


def v_min(rank: int, num_ranks: int, num_microbatches: int) -> Iterator[Action]:
    """The activations of (p + 4) // 3 micro-batches on each rank, where rank 0 of 1F1B has p.

    Where F, I and W take the same time, its idle time is about two thirds of 1F1B's.

    **Communication**: that of ZBV.
    **Memory**: 2 * ((p + 4) // 3) activations, each of a micro-batch in a stage; a stage is half of 1F1B's.
    """
    p, gap = num_ranks, 0 if num_ranks % 3 else 2
    return _repeat((rank, 2 * p - 1 - rank, 2 * p + gap + rank, 4 * p - 1 + gap - rank), rank, p, num_microbatches)


def _repeat(offsets: tuple[int, ...], rank: int, num_ranks: int, num_microbatches: int) -> Iterator[Action]:
    """Offsets are the clocks of micro-batch 0's F and F in the two stages, then I and I in the other order."""
    down, up = rank, 2 * num_ranks - 1 - rank
    block = list(zip(offsets, (Op.F, Op.F, Op.I, Op.I), (down, up, up, down), strict=True))
    clocks = {6 * i + clock: Action(stage, op, i) for clock, op, stage in block for i in range(num_microbatches)}
    weights = deque[Action]()
    for clock in range(1 + max(clocks)):
        if action := clocks.get(clock):
            yield action
            if action.op == Op.I:
                weights.append(action._replace(op=Op.W))
        elif weights:  # a free clock
            yield weights.popleft()
    yield from weights
