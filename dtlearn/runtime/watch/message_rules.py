"""Which send belongs to which receive, as far as the logs of the ranks tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..faults.diagnosis import Diagnosis
from ..record.record import Event


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


def unmatched(events: Sequence[Event]) -> str:
    """Messages of which only one half is there, as a sentence."""
    halves = []
    for event in events:
        peer = "any rank" if event.peer is None else f"rank {event.peer}"
        halves.append(f"rank {event.rank} {'sends to' if sends(event) else 'receives from'} {peer}")
    return f"{', '.join(halves)}, and the other half is missing"


def lone_sends(views: Mapping[int, RankView]) -> list[Event]:
    """Sends under way that no rank has a receive for; an isend is one although its rank may not wait for it."""
    under_way = [e for view in views.values() for e in view.calls if sends(e) and e.end_ns is None and e.peer in views]
    return [event for event in under_way if not partner(event, views)]


def find_stranger(views: Mapping[int, RankView]) -> Diagnosis | None:
    """A message to or from a rank that the job does not have, or to or from the rank itself.

    gloo does not check: the rank waits, crashes, or is told "Pair is not connected". All ranks that have such a message
    belong to the fault: whichever of them dies, dies of it.
    """
    found = {}
    for rank, view in sorted(views.items()):
        if stranger := next((event for event in view.calls if _is_stranger(event)), None):
            found[rank] = stranger
    if not found:
        return None
    first = min(found.values(), key=lambda event: event.start_ns)
    verb, size = "sends to" if sends(first) else "receives from", first.detail.get("world_size")
    whom = f"rank {first.peer}, but the job has only {size} rank{'s' * (size != 1)}"
    if first.peer == first.rank:
        whom = "itself: a message needs two ranks; what stays on the rank is copied"
    headline = f"rank {first.rank} {verb} {whom}"
    return Diagnosis("DTL-P2P-UNMATCHED", headline, (first.rank,), found, dict.fromkeys(found, "called"))


def _is_stranger(event: Event) -> bool:
    if not event.is_p2p:
        return False
    to_itself = event.peer == event.rank and "raised" in event.detail
    return to_itself or ("world_size" in event.detail and event.end_ns is None)


def find_misfit(views: Mapping[int, RankView]) -> Diagnosis | None:
    """A message that is longer or shorter than what its receiver has room for."""
    lanes: dict[tuple[object, ...], tuple[list[Event], list[Event]]] = defaultdict(lambda: ([], []))
    anyone = {rank for rank, view in views.items() for e in view.calls if e.is_p2p and e.peer is None}
    for rank, view in sorted(views.items()):
        for event in view.calls:
            if event.is_p2p and event.peer is not None and "raised" not in event.detail:
                ends = (rank, event.peer) if sends(event) else (event.peer, rank)
                lanes[(*ends, *lane(event))][not sends(event)].append(event)
    for (_, receiver, *_), (sent, received) in lanes.items():
        for one, other in zip(sent, received, strict=False):
            if one.nbytes != other.nbytes and receiver not in anyone:  # a receive from anyone may have taken it
                headline = (
                    f"rank {one.rank} sends {one.nbytes:,} bytes to rank {other.rank}, which has room for "
                    f"{other.nbytes:,}"
                )
                calls = {one.rank: one, other.rank: other}
                return Diagnosis(
                    "DTL-P2P-SIZE", headline, (one.rank, other.rank), calls, dict.fromkeys(calls, "called")
                )
    return None
