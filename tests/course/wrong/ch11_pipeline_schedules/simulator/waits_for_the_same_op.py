# expect: DTL-DIFFICULTY
# says: whichever that does
# says: after which your function was at line

from collections.abc import Sequence
from typing import Any

Action = tuple[int, str, int]


def simulator(
    orders: list[list[Action]], placement: Sequence[int], times: dict[str, Sequence[int]], transfer: int
) -> dict[str, Any]:
    """Return the makespan, and each rank's idle time and peak of live activations."""
    ends: dict[Action, int] = {}  # both B and the I of a split backward pass stand there as "B"
    free, place = [0] * len(orders), [0] * len(orders)

    def needs(stage: int, op: str, k: int) -> list[Action]:
        if op == "F":
            return [(stage - 1, "F", k)] if stage else []
        if op == "W":
            return [(stage, "I", k)]
        return [(stage, "F", k)] + ([(stage + 1, op, k)] if stage + 1 < len(placement) else [])

    while any(place[rank] < len(order) for rank, order in enumerate(orders)):
        for rank, order in enumerate(orders):
            while place[rank] < len(order) and all(a in ends for a in needs(*order[place[rank]])):
                stage, op, k = order[place[rank]]
                start = free[rank]
                for needed in needs(stage, op, k):
                    start = max(start, ends[needed] + transfer * (placement[needed[0]] != rank))
                free[rank] = start + times[op][stage]
                ends[stage, op, k] = free[rank]
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
