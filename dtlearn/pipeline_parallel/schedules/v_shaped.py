"""V-shaped schedules: rank r has stages r and 2p - 1 - r, so the model runs down the ranks and up again.

Rank 0 has the first stage and the last one, so the first backward pass begins where the first forward pass began.
`zbv` is the schedule of the zero bubble paper (2401.10241, section 6), as in torch's ScheduleZBVZeroBubble.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..actions import Action, Op


def zbv(rank: int, num_ranks: int, num_microbatches: int) -> Iterator[Action]:
    """With F = I = W and m >= 2p - 1, a rank that has begun is not idle before it is done.

    **Communication**: 2m messages to each neighbour; stages p - 1 and p are on one rank.
    **Memory**: 2p activations of a micro-batch in a stage; a stage is half of 1F1B's.
    """
    below = num_ranks - rank  # this rank and those after it, towards the point of the V
    length = max(num_microbatches, 2 * num_ranks - 1)
    warmup = "F0 " * (2 * below - 1) + "F1 F0 " * rank + "F1 I1 W1 " * below
    steady = "F0 I0 W0 F1 I1 W1 " * (length - num_ranks)
    cooldown = "I0 I1 " * rank + "I0 W0 " * below + "W1 " * rank + "W0 " * rank
    done = Counter[str]()
    for step in (warmup + steady + cooldown).split():
        stage = rank if step[1] == "0" else 2 * num_ranks - 1 - rank
        if done[step] < num_microbatches:  # where they are few, the pattern is longer than needed
            yield Action(stage, Op(step[0]), done[step])
        done[step] += 1
