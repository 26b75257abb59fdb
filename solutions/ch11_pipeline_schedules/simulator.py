"""Simulate a schedule: how long it takes, how long each rank is idle, how many activations it holds.

**Given** a valid schedule, and times, all of them whole numbers:

- `orders`: for each rank, the list of its actions, in the order in which it does them. An action is a tuple
  `(stage, op, microbatch)`. Each stage does for each micro-batch an `"F"`, its forward pass, and then either a
  `"B"`, the backward pass, or its two parts: an `"I"`, the gradient of the stage's input, and a `"W"`, the
  gradients of its weights.
- `placement`: `placement[stage]` is the rank that holds this stage.
- `times`: `times[op][stage]` is how long such an action takes.
- `transfer`: how long a result takes from one rank to another. On the same rank it is there at once.

**An action starts** as soon as its rank has done the action before it in the order and the results that it
needs are there:

| action | needs the results of |
|---|---|
| F of stage s | F of stage s - 1, same micro-batch; nothing if s is 0 |
| B or I of stage s | F of stage s, and the B or I of stage s + 1, if there is one; same micro-batch |
| W of stage s | I of stage s, same micro-batch |

A rank does not wait while its result is sent to another rank: it goes on with its next action. Time begins
at 0.

**Return** a dict:

| key | value |
|---|---|
| `"makespan"` | when the last action ends |
| `"idle"` | for each rank, how long it is idle between 0 and the makespan |
| `"peak"` | for each rank, the largest number of live activations at any time |

**Live** are the activations that a stage keeps for a micro-batch, from the start of its F to the end of its B;
if the backward pass is split, to the end of its W. Each pair of stage and micro-batch counts as one.

**Example**: two stages on two ranks, two micro-batches, F takes 1, B takes 2, `transfer` is 1.

| rank | its order, with start to end | idle | peak |
|---|---|---|---|
| 0 | 0F0 0-1, 0F1 1-2, 0B0 6-8, 0B1 9-11 | 5 | 2 |
| 1 | 1F0 2-3, 1B0 3-5, 1F1 5-6, 1B1 6-8 | 5 | 1 |

The makespan is 11.
"""

from collections.abc import Sequence
from typing import Any

Action = tuple[int, str, int]


def simulator(
    orders: list[list[Action]], placement: Sequence[int], times: dict[str, Sequence[int]], transfer: int
) -> dict[str, Any]:
    """Return the makespan, and each rank's idle time and peak of live activations."""
    # BEGIN SOLUTION: play all orders at once, then count
    ends: dict[Action, int] = {}  # both B and the I of a split backward pass stand there as "B"
    free, place = [0] * len(orders), [0] * len(orders)

    def needs(stage: int, op: str, k: int) -> list[Action]:
        if op == "F":
            return [(stage - 1, "F", k)] if stage else []
        if op == "W":
            return [(stage, "B", k)]
        return [(stage, "F", k)] + ([(stage + 1, "B", k)] if stage + 1 < len(placement) else [])

    while any(place[rank] < len(order) for rank, order in enumerate(orders)):
        for rank, order in enumerate(orders):
            while place[rank] < len(order) and all(a in ends for a in needs(*order[place[rank]])):
                stage, op, k = order[place[rank]]
                start = free[rank]
                for needed in needs(stage, op, k):
                    start = max(start, ends[needed] + transfer * (placement[needed[0]] != rank))
                free[rank] = start + times[op][stage]
                ends[stage, "B" if op == "I" else op, k] = free[rank]
                place[rank] += 1
    made: dict[str, Any] = {"makespan": max(free), "idle": [], "peak": []}
    for order in orders:
        live = peak = 0
        for _, op, _ in order:
            live += (op == "F") - (op in "BW")
            peak = max(peak, live)
        made["idle"].append(made["makespan"] - sum(times[op][stage] for stage, op, _ in order))
        made["peak"].append(peak)
    return made
    # END SOLUTION
