"""Rules on what the ranks communicated: which calls, how many, how many bytes, to whom, in which order.

Each function makes a `check.Rule`; it judges the record of one run. The record comes from the learner's process: it
teaches, and what must not be forged is judged by values (and, where network namespaces exist, by bytes on the wire).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..runtime.record.event import Event
from ..runtime.record.operations import P2P_OPS
from ..runtime.record.record import Record
from .check import Case, Finding, Given, Rule
from .formula import Formula
from .message_chain import longest_chain

Limit = Callable[[Case, Given], float]
_MOST_HOPS = 6  # of a chain that is shown


def only(*ops: str, why: str = "") -> Rule:
    """Only these operations may be called."""

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        for event in record:
            if event.op not in ops:
                return _misuse(event, f"this exercise is to be done with {_or(ops)} only", why)
        return None

    return rule


def never(*ops: str, why: str = "") -> Rule:
    """These operations may not be called."""

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        for event in record:
            if event.op in ops:
                return _misuse(event, "this exercise does without it", why)
        return None

    return rule


def at_least(op: str, count: int = 1, *, on_rank: int | None = None) -> Rule:
    """Every rank (or that one) calls `op` so often; at world size 1 nothing need be called."""

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        for rank in range(case.world_size) if on_rank is None else [on_rank]:
            made = len(record.select(rank=rank, op=op))
            if case.world_size > 1 and made < count:
                text = f"rank {rank} made {made} {op} call{'s' * (made != 1)}; at least {count} are needed"
                return Finding("DTL-RULE-CALLS", text, rank)
        return None

    return rule


def most_messages(limit: Limit | str) -> Rule:
    """No rank makes more calls (sends, for point-to-point) than this; see `most_bytes`."""

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        return _over(case, given, record, limit, messages_of, "DTL-RULE-MESSAGES", "messages")

    return rule


def most_bytes(limit: Limit | str) -> Rule:
    """No rank hands over more bytes than this.

    Args:
        limit: a function of case and inputs, or a formula in N (the world size), such as "2*(N-1)".
    """

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        return _over(case, given, record, limit, bytes_of, "DTL-RULE-BYTES", "bytes")

    return rule


def most_rounds(limit: Limit | str) -> Rule:
    """No chain of messages, each waiting for the one before, is longer; see `message_chain` and `most_bytes`."""

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        for event in record:
            if event.is_p2p and event.peer is None:
                return _misuse(event, "name the rank to receive from", "The steps cannot be counted otherwise.")
        chain, most = longest_chain(record), _limit(limit, case, given)
        if len(chain) <= most:
            return None
        shown = ", ".join(f"{src} to {dst}" for src, dst in chain[:_MOST_HOPS])
        text = f"{len(chain)} messages follow one another ({shown}{', ...' * (len(chain) > _MOST_HOPS)}); "
        return Finding("DTL-RULE-ROUNDS", f"{text}{most:,.0f} in a row are enough", chain[-1][0])

    return rule


def in_a_ring() -> Rule:
    """Each rank sends to the next one only, the last to rank 0."""

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        for event in record:
            right = (event.rank + 1) % case.world_size
            if event.sends and event.peer != right:
                text = f"line {event.line} of rank {event.rank} sends to rank {event.peer}; in this ring it may send "
                advice = "In a ring every rank sends to its right neighbour only."
                return Finding("DTL-RULE-ROUTE", f"{text}to rank {right} only", event.rank, event.line or None, advice)
        return None

    return rule


def most_bytes_between(unit: Callable[[Case], int], limit: Limit | str) -> Rule:
    """No node sends more bytes than this to other nodes, all its ranks together.

    Args:
        unit: `unit(case)`: ranks of a node; ranks 0 to unit - 1 are the first.
        limit: see `most_bytes`.
    """

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        size, most, made = unit(case), _limit(limit, case, given), dict[int, int]()
        for event in record:
            if event.sends and event.peer is not None and event.rank // size != event.peer // size:
                made[event.rank // size] = made.get(event.rank // size, 0) + event.nbytes
        node = max(made, key=lambda n: made[n], default=0)
        if not made or made[node] <= most:
            return None
        text = f"node {node} (ranks {node * size} to {node * size + size - 1}) sent {made[node]:,} bytes to other nodes"
        over = f" ({made[node] / most:.2f}x)" if most else ""
        return Finding("DTL-RULE-BYTES", f"{text}; the budget is {most:,.0f}{over}", node * size)

    return rule


def ordered(before: Callable[[Event], bool], after: Callable[[Event], bool], text: str) -> Rule:
    """On every rank the first call that is `after` starts later than the last that is `before`."""

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        for rank in range(case.world_size):
            events = list(record.select(rank=rank))
            firsts = [e for e in events if after(e)]
            lasts = [e for e in events if before(e)]
            if firsts and lasts and firsts[0].start_ns < lasts[-1].start_ns:
                return Finding("DTL-RULE-SCHEDULE", f"{text} (rank {rank})", rank, firsts[0].line or None)
        return None

    return rule


def bytes_of(record: Record, rank: int) -> int:
    """Bytes that a rank hands over: payloads of collectives, and what it sends; not what it receives."""
    return sum(e.nbytes for e in record.select(rank=rank) if e.op not in ("recv", "irecv"))


def messages_of(record: Record, rank: int) -> int:
    """Collective calls and sends of a rank."""
    return sum(e.op not in ("recv", "irecv", "new_group") for e in record.select(rank=rank))


def _over(
    case: Case,
    given: Given,
    record: Record,
    limit: Limit | str,
    count: Callable[[Record, int], int],
    code: str,
    unit: str,
) -> Finding | None:
    most = _limit(limit, case, given)
    made = {rank: count(record, rank) for rank in range(case.world_size)}
    rank = max(made, key=lambda r: made[r])
    if made[rank] <= most:
        return None
    ops = sorted({e.op for e in record.select(rank=rank)} - {"recv", "irecv"})
    p2p = "sent" if set(ops) <= P2P_OPS else "handed over"
    text = (
        f"rank {rank} {p2p} {made[rank]:,} {unit}; the budget is {most:,.0f} ({made[rank] / most:.2f}x)"
        if most
        else (f"rank {rank} {p2p} {made[rank]:,} {unit}; none are needed")
    )
    return Finding(code, text, rank, None, f"It called {', '.join(ops)}.")


def _limit(limit: Limit | str, case: Case, given: Given) -> float:
    return Formula(limit)(N=case.world_size) if isinstance(limit, str) else limit(case, given)


def _or(ops: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(ops[:-1]), ops[-1]]))


def _misuse(event: Event, text: str, why: str) -> Finding:
    line = f"line {event.line} of rank {event.rank} calls {event.op}; {text}"
    return Finding("DTL-RULE-CALLS", line, event.rank, event.line or None, why)
