"""Which send belongs to which receive, as far as the logs of the ranks tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .record import Event


@dataclass(frozen=True)
class RankView:
    """What the watch knows of one rank.

    Attributes:
        calls: its calls so far, in order.
        blocked: the call that it is inside of, or waits for; None if it computes or has ended.
        ended: it has returned, raised or died, and will make no further call.
    """

    calls: Sequence[Event]
    blocked: Event | None
    ended: bool


def group_key(event: Event) -> str:
    """Two groups may have the same ranks: torch's own name tells them apart."""
    return f"{event.group}|{event.detail.get('group_id', '')}"


def partner(event: Event, views: Mapping[int, RankView]) -> Event | None:
    """The other half of a message: the n-th send pairs with the n-th recv of that peer, tag and group."""
    assert event.peer is not None
    mine = [e for e in views[event.rank].calls if e.is_p2p and _same_lane(e, event)]
    n = mine.index(event)
    theirs = [e for e in views[event.peer].calls if e.is_p2p and _opposite_lane(e, event)]
    return theirs[n] if n < len(theirs) else None


def sends(event: Event) -> bool:
    return event.op in ("send", "isend")


def lane(event: Event) -> tuple[object, ...]:
    return (event.detail.get("tag", 0), group_key(event))


def _same_lane(one: Event, other: Event) -> bool:
    return sends(one) == sends(other) and one.peer == other.peer and lane(one) == lane(other)


def _opposite_lane(one: Event, other: Event) -> bool:
    return sends(one) != sends(other) and one.peer in (other.rank, None) and lane(one) == lane(other)
