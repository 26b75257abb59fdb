# expect: DTL-DIFFICULTY
# says: go over the ranks again and again
# says: many ranks

from collections import Counter
from collections.abc import Sequence
from typing import Any

Action = tuple[int, str, int]


def validator(
    orders: list[list[Action]], placement: Sequence[int], num_microbatches: int, ops: Sequence[str]
) -> dict[str, list[Any]]:
    """Return what is wrong, by kind."""
    num_stages = len(placement)
    wanted = {(s, op, k) for s in range(num_stages) for op in ops for k in range(num_microbatches)}
    counts = Counter(action for order in orders for action in order)
    found: dict[str, list[Any]] = {
        "unknown": [a for a in counts if a not in wanted],
        "missing": [a for a in wanted if a not in counts],
        "repeated": [a for a, count in counts.items() if a in wanted and count > 1],
        "misplaced": [
            a for a in wanted if any(a in order for rank, order in enumerate(orders) if rank != placement[a[0]])
        ],
    }
    found |= {"stuck": [None] * len(orders), "circle": []}
    if any(found[key] for key in ("unknown", "missing", "repeated", "misplaced")):
        return found

    def needs(action: Action) -> list[Action]:
        stage, op, k = action
        if op == "F":
            return [(stage - 1, "F", k)] if stage else []
        if op == "W":
            return [(stage, "I", k)]
        return [(stage, "F", k)] + ([(stage + 1, op, k)] if stage + 1 < num_stages else [])

    done: set[Action] = set()
    place = [0] * len(orders)

    for _ in range(7):
        for rank, order in enumerate(orders):
            while place[rank] < len(order) and done.issuperset(needs(order[place[rank]])):
                done.add(order[place[rank]])
                place[rank] += 1
    waits_for: list[set[int]] = [set() for _ in orders]
    for rank, order in enumerate(orders):
        if place[rank] < len(order):
            found["stuck"][rank] = order[place[rank]]
            waits_for[rank] = {placement[a[0]] for a in needs(order[place[rank]]) if a not in done}
    for _ in orders:
        waits_for = [ranks.union(*(waits_for[r] for r in ranks)) for ranks in waits_for]
    found["circle"] = [rank for rank, ranks in enumerate(waits_for) if rank in ranks]
    return found
