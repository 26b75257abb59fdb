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
    """About half of 1F1B's memory. With F = I = W and 4 ranks or more, 2/3 of its idle time or less.

    **Communication**: that of ZBV.
    **Memory**: 2 * ((p + 2) // 2) activations of a micro-batch in a stage, half of 1F1B's stage.
    """
    p, gap = num_ranks, 0 if num_ranks % 2 else 3
    forward, backward = (2 * rank, 3 * p - 2 - rank), (3 * p - 1 + 2 * rank, 6 * p - 2 - rank)
    return repeat_block(rank, p, num_microbatches, forward, backward, gap)


def v_min(rank: int, num_ranks: int, num_microbatches: int) -> Iterator[Action]:
    """About a third of 1F1B's memory. With F = I = W, about 2/3 of its idle time.

    **Communication**: that of ZBV.
    **Memory**: 2 * ((p + 4) // 3) activations of a micro-batch in a stage, half of 1F1B's stage.
    """
    p, gap = num_ranks, 0 if num_ranks % 3 else 2
    forward, backward = (rank, 2 * p - 1 - rank), (2 * p + rank, 4 * p - 1 - rank)
    return repeat_block(rank, p, num_microbatches, forward, backward, gap)


def repeat_block(
    rank: int,
    num_ranks: int,
    num_microbatches: int,
    forward: tuple[int, int],
    backward: tuple[int, int],
    gap: int,
) -> Iterator[Action]:
    """Repeat micro-batch 0's block every 6 clocks, and put a W wherever a clock is free.

    Args:
        rank, num_ranks, num_microbatches: as above.
        forward: clocks of F in the rank's first and second stage.
        backward: clocks of I in its second and first stage, later by `gap`, so that all clocks differ.
    """
    down, up = rank, 2 * num_ranks - 1 - rank
    block = [(clock, Op.F, stage) for clock, stage in zip(forward, (down, up), strict=True)]
    block += [(clock + gap, Op.I, stage) for clock, stage in zip(backward, (up, down), strict=True)]
    all_i = range(num_microbatches)
    clocks = {clock + 6 * i: Action(stage, op, i) for clock, op, stage in block for i in all_i}
    weights = deque[Action]()
    for clock in range(1 + max(clocks)):
        if action := clocks.get(clock):
            yield action
            if action.op == Op.I:
                weights.append(action._replace(op=Op.W))
        elif weights:  # a free clock
            yield weights.popleft()
    yield from weights
