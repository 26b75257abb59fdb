"""What ch11.validator is to find in a schedule, and what validators with a mistake find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ._jobs import Job
from ._schedules import Action, every, needs, play

LISTS = ("unknown", "missing", "repeated", "misplaced")
WRONG = {  # of each mistake: its code, and what is said of it
    "counts within a rank": (
        "DTL-VALUE-REPEATED-ACTIONS",
        "an action that two ranks do is not found: count over all ranks together",
    ),
    "repeated unknown": (
        "DTL-VALUE-REPEATED-ACTIONS",
        "an unknown action that stands there twice is told as repeated, too",
    ),
    "moved is missing": (
        "DTL-VALUE-MISSING-ACTIONS",
        "an action that stands only with another rank is told as missing: that is misplaced, and nothing else",
    ),
    "moved is not misplaced": (
        "DTL-VALUE-MISPLACED-ACTIONS",
        "an action that its own rank does as well is not told as misplaced where another rank does it",
    ),
    "negative stages": (
        "DTL-VALUE-UNKNOWN-ACTIONS",
        "stage -1 is taken for a stage: placement[-1] is the last one's rank, and no error",
    ),
    "negative micro-batches": ("DTL-VALUE-UNKNOWN-ACTIONS", "micro-batch -1 is taken for one: they count from 0"),
    "unknown ops": ("DTL-VALUE-UNKNOWN-ACTIONS", "an op that is not among `ops` is not told as unknown"),
    "no own forward": (
        "DTL-VALUE-DEPENDENCY",
        "a B, or an I, is taken for ready before the F of its own stage is done",
    ),
    "no stage after": (
        "DTL-VALUE-DEPENDENCY",
        "a B, or an I, does not wait for that of the next stage, from which its gradient comes",
    ),
    "next forward": (
        "DTL-VALUE-DEPENDENCY",
        "a B, or an I, waits for the F of the next stage: it needs the B, or the I, of it",
    ),
    "no stage before": ("DTL-VALUE-DEPENDENCY", "an F does not wait for that of the stage before"),
    "free weights": ("DTL-VALUE-DEPENDENCY", "a W does not wait for the I of its stage and micro-batch"),
    "weights after forward": (
        "DTL-VALUE-DEPENDENCY",
        "a W waits for the F of its stage only: it needs the gradients that I makes",
    ),
    "whole needs weights": (
        "DTL-VALUE-DEPENDENCY",
        "an I waits for the W of the next stage: it needs the I of it only, and that is why the backward is split",
    ),
    "order within ranks only": (
        "DTL-VALUE-DEPENDENCY",
        "only what a rank needs of itself is looked at: ranks wait for other ranks, too",
    ),
    "all stuck": (
        "DTL-VALUE-CIRCLE",
        "ranks are in the circle that only wait for it: following whom they wait for does not lead back to them",
    ),
    "not itself": (
        "DTL-VALUE-CIRCLE",
        "a rank that waits for an action further down in its own order waits for itself: that is a circle",
    ),
    "pairs": ("DTL-VALUE-CIRCLE", "circles of more than two ranks are not found"),
    "first circle": ("DTL-VALUE-CIRCLE", "one circle is found where there are several"),
    "one need": ("DTL-VALUE-CIRCLE", "a rank may wait for two ranks at once, and only one of them is followed"),
}


def find(job: Job, mistake: str = "") -> dict[str, list[Any]]:
    """What is wrong with a schedule, with one mistake of `WRONG`."""
    orders, placement, ops, m = job["orders"], job["placement"], job["ops"], job["num_microbatches"]
    wanted = set(every(len(placement), ops, m))
    if mistake == "negative stages":
        wanted |= {(-1, op, k) for op in ops for k in range(m)}
    if mistake == "negative micro-batches":
        wanted |= {(s, op, -1) for s in range(len(placement)) for op in ops}
    counts = Counter(a for order in orders for a in order)
    most = counts if mistake != "counts within a rank" else {a: max(o.count(a) for o in orders) for a in counts}
    known = {a for a in counts if a in wanted}
    at_home = {a for rank, order in enumerate(orders) for a in order if a in known and placement[a[0]] == rank}
    elsewhere = {a for rank, order in enumerate(orders) for a in order if a in known and placement[a[0]] != rank}
    found: dict[str, list[Any]] = {
        "unknown": sorted(set(counts) - wanted),
        "missing": sorted(a for a in wanted if min(a[0], a[2]) >= 0 and a not in counts),
        "repeated": sorted(a for a in (counts if mistake == "repeated unknown" else known) if most[a] > 1),
        "misplaced": sorted(elsewhere - at_home if mistake == "moved is not misplaced" else elsewhere),
    }
    if mistake == "moved is missing":
        found["missing"] = sorted(a for a in wanted if a not in at_home)
    if mistake == "unknown ops":
        found["unknown"] = [a for a in found["unknown"] if a[1] in ops]
    found |= {"stuck": [None] * len(orders), "circle": []}
    if any(found[key] for key in LISTS):
        return found
    needed = _needs(mistake, placement)
    played = play(orders, placement, lambda action: 1, needed=needed)
    waits: list[list[int]] = [[] for _ in orders]
    for rank, order in enumerate(orders):
        if played.at[rank] < len(order):
            found["stuck"][rank] = action = order[played.at[rank]]
            left = [n for n in needed(action, len(placement)) if not any(a in played.end for a in n)]
            waits[rank] = [placement[n[0][0]] for n in left]
    found["circle"] = _circle(waits, mistake)
    return found


def _needs(mistake: str, placement: list[int]) -> Callable[[Action, int], Any]:
    def needed(action: Action, num_stages: int) -> Any:
        stage, op, k = action
        right: list[Any] = [*needs(action, num_stages)]
        if op in "BI":
            right = right[1:] if mistake == "no own forward" else right
            right = right[:1] if mistake == "no stage after" else right
            if mistake == "next forward" and len(right) > 1:
                right = [right[0], ((stage + 1, "F", k),)]
            if mistake == "whole needs weights" and op == "I" and len(right) > 1:
                right = [right[0], ((stage + 1, "W", k),)]
        if op == "F" and mistake == "no stage before":
            right = []
        if op == "W" and mistake in ("free weights", "weights after forward"):
            right = [((stage, "F", k),)] if mistake == "weights after forward" else []
        if mistake == "order within ranks only":
            right = [n for n in right if placement[n[0][0]] == placement[stage]]
        return right

    return needed


def _circle(waits: list[list[int]], mistake: str = "") -> list[int]:
    if mistake == "all stuck":
        return [rank for rank, ranks in enumerate(waits) if ranks]
    if mistake == "one need":
        waits = [ranks[-1:] for ranks in waits]
    if mistake == "pairs":
        return [r for r, ranks in enumerate(waits) if r in ranks or any(r in waits[other] for other in ranks)]
    reached = [set(ranks) - ({rank} if mistake == "not itself" else set()) for rank, ranks in enumerate(waits)]
    for _ in waits:
        reached = [ranks.union(*(reached[r] for r in ranks)) for ranks in reached]
    inside = [rank for rank, ranks in enumerate(reached) if rank in ranks]
    return [r for r in inside if r in reached[inside[0]]] if mistake == "first circle" else inside
