"""Bytes that a rank sends by ring algorithms, where a budget has to tell collectives apart.

The payload of an all-reduce and that of a reduce-scatter are alike; what they send is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dtlearn.grading import Case, Finding, Given
from dtlearn.grading.rules import Limit, Rule
from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record

# What a rank sends as a multiple of its payload, as `Event.nbytes` counts it, for N ranks.
_RING: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "reduce_scatter_tensor": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "all_to_all_single": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: n - 1,
    "all_gather_into_tensor": lambda n: n - 1,
    "all_gather_object": lambda n: n - 1,
    "recv": lambda n: 0,
    "irecv": lambda n: 0,
}


def bytes_sent(event: Event, world_size: int) -> float:
    """What one call makes its rank send: (N-1)/N of the payload in a reduce-scatter, twice that in an all-reduce."""
    num_ranks = world_size if event.group == "world" else event.group.count(",") + 1
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
