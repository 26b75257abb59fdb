"""Bytes that a rank sends by ring algorithms, where a budget has to tell collectives apart.

The payload of an all-reduce and that of a reduce-scatter are alike; what they send is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dtlearn.grading import Case, Finding, Given
from dtlearn.grading.rules import Limit, Rule
from dtlearn.runtime.record.collectives import members
from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record

# What a rank sends as a multiple of its payload, as `Event.nbytes` counts it, for N ranks.
_RING: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "reduce_scatter_tensor": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "all_to_all_single": lambda n: (n - 1) / n,
    "all_gather": lambda n: n - 1,
    "all_gather_into_tensor": lambda n: n - 1,
    "all_gather_object": lambda n: n - 1,
}


def bytes_sent(event: Event, world_size: int) -> float:
    """What one call makes its rank send: (N-1)/N of the payload in a reduce-scatter, twice that in an all-reduce.

    A broadcast, and a reduce, go along the ring from rank to rank: the last one of it sends nothing.
    """
    ranks = members(event.group, range(world_size))
    if event.receives:
        return 0
    num_ranks, is_root = len(ranks), event.peer == event.rank
    if event.op == "broadcast" and event.peer in ranks:
        before_root = ranks[ranks.index(event.peer) - 1]
        return 0 if event.rank == before_root else event.nbytes
    if event.op in ("reduce", "gather"):
        return 0 if is_root else event.nbytes
    if event.op == "scatter":
        return event.nbytes * (num_ranks - 1) / num_ranks if is_root else 0
    times: float = _RING.get(event.op, lambda n: 1)(num_ranks)
    return event.nbytes * times


def most_sent(limit: Limit, what: str) -> Rule:
    """No rank sends more than this. `what`: the calls that keep to it, for the message."""

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        most = limit(case, given)
        for rank in range(case.world_size):
            events = record.select(rank=rank).events
            sent = sum(bytes_sent(event, case.world_size) for event in events)
            if sent > 1.001 * most:
                calls = Counter(event.op for event in events)
                made = ", ".join(f"{op} {count} time{'s' * (count != 1)}" for op, count in calls.items())
                times = f" ({sent / most:.2f}x)" if most else ""
                text = f"in all steps rank {rank} sends {sent:,.0f} bytes; {what} send {most:,.0f}{times}. It called "
                return Finding("DTL-RULE-BYTES", f"{text}{made}", rank)
        return None

    return rule
