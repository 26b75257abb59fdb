"""Rules on how messages follow one another: in rounds, and around a ring."""

from __future__ import annotations

from dtlearn.grading import Case, Finding, Given, Rule
from dtlearn.grading.message_chain import longest_chain
from dtlearn.grading.rules import limit_of, misuse
from dtlearn.runtime.record.record import Record

_MOST_HOPS = 6  # of a chain that is shown


def most_rounds(limit: str) -> Rule:
    """No chain of messages, each waiting for the one before, is longer: see `longest_chain`, and `rules.most_bytes`."""

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        for event in record:
            if event.is_p2p and event.peer is None:
                return misuse(event, "name the rank to receive from", "The steps cannot be counted otherwise.")
        chain, most = longest_chain(record), limit_of(limit, case, given)
        if len(chain) <= most:
            return None
        shown = ", ".join(f"{src} to {dst}" for src, dst in chain[:_MOST_HOPS])
        text = f"{len(chain)} messages follow one another ({shown}{', ...' * (len(chain) > _MOST_HOPS)}); "
        return Finding("DTL-RULE-ROUNDS", f"{text}{most:,.0f} in a row are enough", chain[-1][0])

    return rule


def beside_the_ring(case: Case, given: Given, record: Record) -> str:
    """For `Check.why`: a rank that sends to another one than its right neighbour, or receives from another than its
    left one; "" if there is none."""
    for event in record:
        neighbour = (event.rank + (1 if event.sends else -1)) % case.world_size
        if event.is_p2p and event.peer not in (None, neighbour):
            verb, side = ("send to", "right") if event.sends else ("receive from", "left")
            return f"in this ring rank {event.rank} may {verb} rank {neighbour} only, its {side} neighbour"
    return ""


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
