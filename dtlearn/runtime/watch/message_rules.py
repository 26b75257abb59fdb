"""The rules of the watch for messages, as pure functions: has each the other half that it needs, and do they fit?"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..faults.diagnosis import Diagnosis
from ..record.event import Event
from ..record.pairs import Lane, lane, pairs
from ..words import ordinal, ranks_text


@dataclass(frozen=True)
class RankView:
    """What the watch knows of one rank."""

    calls: Sequence[Event]  # its calls so far, in order
    blocked: Event | None  # the call that it is inside of, or waits for; None if it computes or has ended
    ended: bool  # it has returned, raised or died, and will make no further call


def partner(event: Event, views: Mapping[int, RankView]) -> Event | None:
    """The other half of a message; None if that rank has not posted it. What it receives from anyone may be it."""
    assert event.peer is not None
    calls = [call for rank in {event.rank, event.peer} for call in views[rank].calls]
    for sent, received in pairs(calls, from_anyone=event.sends):
        if event is sent:
            return received
        if event is received:
            return sent
    return None


def half(event: Event) -> str:
    """ "rank 0 sends to rank 1"."""
    peer = "any rank" if event.peer is None else f"rank {event.peer}"
    return f"rank {event.rank} {'sends to' if event.sends else 'receives from'} {peer}"


def unmatched(events: Sequence[Event]) -> str:
    """Messages of which only one half is there, as a sentence."""
    return f"{', '.join(map(half, events))}, and the other half is missing"


def has_threads(view: RankView) -> bool:
    """Whether a rank makes calls from several threads: while one waits, another may make the call that is awaited."""
    return any("thread" in event.detail for event in view.calls)


def awaits_anyone(rank: int, views: Mapping[int, RankView]) -> bool:
    """Whether a rank waits for a message from any rank, and none that was sent to it is left."""
    event = views[rank].blocked
    if event is None or not event.receives or event.peer is not None:
        return False
    sent = sum(e.sends and e.peer == rank for view in views.values() for e in view.calls)
    return sent < sum(e.receives for e in views[rank].calls)


def _circle(waiting: Sequence[Event]) -> list[int]:
    """Ranks of which each sends to the next, and the last to the first; [] if there is no such circle."""
    to = {event.rank: event.peer for event in waiting if event.sends}
    for rank in to:
        way = [rank]
        while (peer := to.get(way[-1])) is not None and peer not in way:
            way.append(peer)
        if peer == rank:
            return way
    return []


def find_stranger(views: Mapping[int, RankView]) -> Diagnosis | None:
    """A message to or from a rank that the job does not have, or to or from the rank itself.

    gloo does not check: the rank waits, crashes, or is told "Pair is not connected". All ranks that have such a message
    belong to the fault: whichever of them dies, dies of it.
    """
    strangers = {}
    for rank, view in sorted(views.items()):
        if stranger := next((event for event in view.calls if _is_stranger(event)), None):
            strangers[rank] = stranger
    if not strangers:
        return None
    first = min(strangers.values(), key=lambda event: event.start_ns)
    verb, size = "sends to" if first.sends else "receives from", first.detail.get("world_size")
    whom = f"rank {first.peer}, but the job has only {size} rank{'s' * (size != 1)}"
    if first.peer == first.rank:
        whom = "itself: a message needs two ranks; what stays on the rank is copied"
    headline = f"rank {first.rank} {verb} {whom}"
    return Diagnosis("DTL-P2P-UNMATCHED", headline, (first.rank,), strangers, dict.fromkeys(strangers, "called"))


def _is_stranger(event: Event) -> bool:
    if not event.is_p2p:
        return False
    to_itself = event.peer == event.rank and "raised" in event.detail
    return to_itself or ("world_size" in event.detail and event.end_ns is None)


def find_misfit(views: Mapping[int, RankView]) -> Diagnosis | None:
    """A message that is longer or shorter than what its receiver has room for, or of another dtype."""
    anyone = {rank for rank, view in views.items() for e in view.calls if e.is_p2p and e.peer is None}
    calls = [e for _, view in sorted(views.items()) for e in view.calls if "raised" not in e.detail]
    for sent, received in pairs(calls):
        if sent.nbytes != received.nbytes and received.rank not in anyone:  # a receive from anyone may have taken it
            room = f"rank {received.rank}, which has room for {received.nbytes:,}"
            empty = "" if sent.nbytes and received.nbytes else ": an empty tensor counts as a message on both ranks"
            headline = f"rank {sent.rank} sends {sent.nbytes:,} bytes to {room}{empty}"
            if sent.shape == received.shape and sent.dtype != received.dtype:
                headline += f": {sent.dtype} against {received.dtype}, of the same shape"
            ends = {sent.rank: sent, received.rank: received}
            return Diagnosis("DTL-P2P-SIZE", headline, (sent.rank, received.rank), ends, dict.fromkeys(ends, "called"))
        if None not in (sent.dtype, received.dtype) and sent.dtype != received.dtype and received.rank not in anyone:
            ends = {sent.rank: sent, received.rank: received}
            headline = f"rank {sent.rank} sends {sent.dtype} to rank {received.rank}, which receives {received.dtype}"
            return Diagnosis("DTL-P2P-DTYPE", headline, (sent.rank, received.rank), ends, dict.fromkeys(ends, "called"))
    return None


def settled_messages(views: Mapping[int, RankView]) -> Iterator[Event]:
    """Both halves of the messages that were sent and received. Without them the others pair as they did."""
    messages = [event for view in views.values() for event in view.calls if event.is_p2p]
    if any(event.peer is None for event in messages):  # a receive from anyone could pair with any message
        return
    held: set[Lane] = set()  # behind a message under way, the rest of its lane must keep its places
    for pair in pairs(messages):
        way = lane(pair[0], pair[1].rank)
        if way in held or any(event.end_ns is None for event in pair):
            held.add(way)
        else:
            yield from pair


def find_dropped_half(views: Mapping[int, RankView]) -> Diagnosis | None:
    """A rank that waits for a message whose Work was thrown away: gloo then gives the message up."""
    for rank, view in views.items():
        event = view.blocked
        if event is None or not event.is_p2p or event.peer is None or event.peer not in views:
            continue
        other = partner(event, views)
        if other is not None and other.end_ns is None and other.detail.get("dropped"):
            verb = "receives" if other.sends else "sends"
            count = ordinal(sum(e.op == other.op and e.seq <= other.seq for e in views[other.rank].calls))
            call = f"{count} {other.op}, line {other.line}"
            headline = f"rank {other.rank} never waited for its {call}, which was given up; rank {rank} {verb} in vain"
            calls = {other.rank: other, rank: event}
            return Diagnosis("DTL-ASYNC-WAIT", headline, (other.rank,), calls, {other.rank: "dropped", rank: "waits"})
    return None


def lone_halves(views: Mapping[int, RankView]) -> list[Event]:
    """Sends and receives under way without their other half; an isend is one although its rank may not wait for it."""
    under_way = [e for view in views.values() for e in view.calls if e.is_p2p and e.end_ns is None and e.peer in views]
    return [event for event in under_way if not partner(event, views)]


def message_deadlock(
    blocked: Mapping[int, Event | None], absent: list[int], views: Mapping[int, RankView]
) -> Diagnosis:
    """The diagnosis for ranks, `blocked`, that wait in messages only: for each other, or for ended ranks, `absent`."""
    states: dict[int, str] = dict.fromkeys(blocked, "waits")
    kinds = {e.sends for e in blocked.values() if e is not None}
    waiting = [e for e in blocked.values() if e is not None]
    pending = [event for event in lone_halves(views) if event not in waiting]
    if not absent and len(kinds) == 1 and kinds >= {event.sends for event in pending}:
        who = ranks_text(list(blocked))
        if kinds == {False}:
            headline = f"{who} wait to receive and nobody sends"
            return Diagnosis("DTL-P2P-NO-SEND", headline, tuple(blocked), blocked, states)
        headline = f"{who} send to each other and nobody receives"
        return Diagnosis("DTL-P2P-CYCLE", headline, tuple(blocked), blocked, states)
    if (circle := _circle(waiting)) and all(event.sends for event in pending):
        headline = f"{ranks_text(circle)} send to each other and nobody receives"
        return Diagnosis("DTL-P2P-CYCLE", headline, tuple(sorted(circle)), blocked, states)
    calls: dict[int, Event | None] = dict(blocked)
    for rank in absent:
        calls[rank] = views[rank].calls[-1] if views[rank].calls else None
        states[rank] = "ended"
    for sent, received in itertools.permutations([*waiting, *pending], 2):
        if sent.sends and not received.sends and (sent.peer, received.peer) == (received.rank, sent.rank):
            tags = sent.detail.get("tag", 0), received.detail.get("tag", 0)
            if tags[0] != tags[1] and sent.group_key == received.group_key:
                headline = f"rank {sent.rank} sends to rank {received.rank} with tag {tags[0]}, "
                headline += f"which receives tag {tags[1]}"
                return Diagnosis("DTL-P2P-TAG", headline, tuple(blocked), calls, states)
    # Ranks may have posted both halves, each to another rank.
    also = f"; it is missing too where {', '.join(map(half, pending[:4]))}" if pending else ""
    return Diagnosis("DTL-P2P-UNMATCHED", unmatched(waiting) + also, tuple(blocked), calls, states)
