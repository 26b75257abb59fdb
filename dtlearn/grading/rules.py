"""Rules on what the ranks communicated: which calls, how many, how many bytes, to whom, in which order.

Each function makes a `check.Rule`; it judges the record of one run. The record comes from the learner's process: it
teaches, and what must not be forged is judged by values (and, where network namespaces exist, by bytes on the wire).
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

from ..runtime.record.event import Event
from ..runtime.record.operations import P2P_OPS
from ..runtime.record.record import Record
from ..runtime.words import listed
from .check import Case, Finding, Given, Rule
from .formula import evaluate

Limit = Callable[[Case, Given], float]


def only(*ops: str, why: str = "") -> Rule:
    """Only these operations may be called."""
    named = (*ops, "batch_isend_irecv") if {"isend", "irecv"} <= {*ops} else ops  # it is recorded as what it calls
    text = f"this exercise is to be done with {listed(named, 'or')} only"
    return lambda case, given, record: next((misuse(e, text, why) for e in record if e.op not in ops), None)


def never(*ops: str, why: str = "") -> Rule:
    """These operations may not be called."""
    text = "this exercise does without it"
    return lambda case, given, record: next((misuse(e, text, why) for e in record if e.op in ops), None)


def most_messages(limit: Limit | str) -> Rule:
    """No rank makes more calls (sends, for point-to-point) than this; see `most_bytes`."""
    return partial(_over, limit, messages_of, "messages")


def most_bytes(limit: Limit | str) -> Rule:
    """No rank hands over more bytes than this.

    Args:
        limit: a function of case and inputs, or a formula in N (the world size), such as "2*(N-1)".
    """
    return partial(_over, limit, bytes_of, "bytes")


def bytes_of(record: Record, rank: int) -> int:
    """Bytes that a rank hands over: payloads of collectives, and what it sends; not what it receives."""
    return sum(e.nbytes for e in record.select(rank=rank) if not e.receives)


def messages_of(record: Record, rank: int) -> int:
    """Collective calls and sends of a rank."""
    return sum(not e.receives and e.op != "new_group" for e in record.select(rank=rank))


def _over(
    limit: Limit | str, count: Callable[[Record, int], int], unit: str, case: Case, given: Given, record: Record
) -> Finding | None:
    """`count`: what a rank made of `unit`."""
    most = limit_of(limit, case, given)
    counts = {rank: count(record, rank) for rank in range(case.world_size)}
    rank = max(counts, key=lambda r: counts[r])
    if counts[rank] <= most:
        return None
    ops = Counter(e.op for e in record.select(rank=rank) if not e.receives)
    p2p = "sent" if set(ops) <= P2P_OPS else "handed over"
    budget = f"the budget is {most:,.0f} ({counts[rank] / most:.2f}x)" if most else "none are needed"
    text = f"rank {rank} {p2p} {counts[rank]:,} {unit}; {budget}"
    calls = ", ".join(f"{op} {count} time{'s' * (count != 1)}" for op, count in ops.items())
    return Finding(f"DTL-RULE-{unit.upper()}", text, rank, None, f"It called {calls}." if p2p != "sent" else "")


def limit_of(limit: Limit | str, case: Case, given: Given) -> float:
    return evaluate(limit, N=case.world_size) if isinstance(limit, str) else limit(case, given)


def misuse(event: Event, text: str, why: str) -> Finding:
    line = f"line {event.line} of rank {event.rank} calls {event.op}; {text}"
    return Finding("DTL-RULE-CALLS", line, event.rank, event.line or None, why)
