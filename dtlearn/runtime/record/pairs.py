"""Which send belongs to which receive: the n-th of each sender, receiver, group and tag on both sides.

That is how gloo and NCCL match messages, and the one place that says so: the record's messages and the rules of the
watch are made of these pairs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from .event import Event

# What messages must have in common to be matched by their order: sender, receiver, group, tag.
Lane = tuple[int, int, str, int]


def lane(event: Event, peer: int) -> Lane:
    """The lane of half a message whose other end is `peer`."""
    ends = (event.rank, peer) if event.sends else (peer, event.rank)
    return *ends, event.group_key, event.detail.get("tag", 0)


def pairs(events: Iterable[Event], from_anyone: bool = False) -> Iterator[tuple[Event, Event]]:
    """Every send with the receive that takes it, lane by lane.

    Args:
        events: calls of several ranks, those of each rank in order. What is no message is passed over, and so is the
            half of a message without the other.
        from_anyone: count a receive from any rank in the lane of each rank that sends; it then may be in several pairs,
            of which one comes true. False: leave it out.
    """
    halves: dict[Lane, tuple[list[Event], list[Event]]] = defaultdict(lambda: ([], []))
    messages = [event for event in events if event.is_p2p]
    senders = {event.rank for event in messages if event.sends} if from_anyone else set()
    for event in messages:
        for peer in senders if event.peer is None else (event.peer,):
            halves[lane(event, peer)][not event.sends].append(event)
    for sent, received in halves.values():
        yield from zip(sent, received, strict=False)
