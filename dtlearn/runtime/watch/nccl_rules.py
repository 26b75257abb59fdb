"""What gloo forgives and NCCL does not, as advice: of calls that went well, those that would fail or hang there.

NCCL queues a call on a stream of its group and returns. Calls of one group run in the order in which a rank makes them,
messages too, and each runs until its partners run the same one. Sources: NCCL's user guide ("Using multiple NCCL
communicators concurrently", "Point-to-point communication"); NVIDIA/nccl#479; torch's notes on `batch_isend_irecv`.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..record.event import Event
from ..record.pairs import pairs
from .message_rules import RankView

Together = list[Event]  # messages that begin at once: one, or those of one `batch_isend_irecv`


def nccl_advice(views: Mapping[int, RankView]) -> dict[str, str]:
    """A sentence for each of these rules that is broken, by the name of the rule."""
    passed_over = {"raised", "for_gloo"}
    calls = {rank: [e for e in view.calls if not passed_over & e.detail.keys()] for rank, view in views.items()}
    rules = {
        "gaps": _gaps(calls),
        "device": _other_device(calls),
        "any rank": _from_anyone(calls),
        "tags": _tags(calls),
        "order of messages": _order_of_messages(calls),
        "order of groups": _order_of_groups(calls),
    }
    return {name: text for name, text in rules.items() if text}


def _where(event: Event) -> str:
    return f"rank {event.rank}'s {event.op}" + (f" in line {event.line}" if event.line else "")


def _first(calls: Mapping[int, Sequence[Event]], name: str) -> Event | None:
    """The first call whose details have this name."""
    return next((e for events in calls.values() for e in events if name in e.detail), None)


def _gaps(calls: Mapping[int, Sequence[Event]]) -> str:
    event = _first(calls, "strided")
    return f"{_where(event)} has a tensor that is not contiguous; NCCL takes none: x.contiguous()" if event else ""


def _other_device(calls: Mapping[int, Sequence[Event]]) -> str:
    event = _first(calls, "device")
    if event is None:
        return ""
    return f"{_where(event)} has a tensor on {event.detail['device']}; NCCL takes those on the rank's own GPU only"


def _from_anyone(calls: Mapping[int, Sequence[Event]]) -> str:
    event = next((e for events in calls.values() for e in events if e.receives and e.peer is None), None)
    return f"{_where(event)} receives from any rank; NCCL has to know from which one: src=..." if event else ""


def _tags(calls: Mapping[int, Sequence[Event]]) -> str:
    """Messages that tags tell apart, taken in another order than sent: NCCL has no tags."""
    messages = [e for events in calls.values() for e in events if e.is_p2p]
    by_lane: dict[tuple[int, int, str], list[tuple[Event, Event]]] = {}
    for sent, received in pairs(messages):
        by_lane.setdefault((sent.rank, received.rank, sent.group_key), []).append((sent, received))
    for matched in by_lane.values():
        matched.sort(key=lambda pair: pair[0].seq)
        for (_, before), (sent, received) in itertools.pairwise(matched):
            if received.seq < before.seq:
                text = f"{_where(sent)} and what rank {received.rank} receives are paired by their tags; "
                return text + "NCCL ignores tags and pairs messages in order"
    return ""


def _order_of_messages(calls: Mapping[int, Sequence[Event]]) -> str:
    """Messages that end only because several are under way at once: one after the other, as on a stream, all wait."""
    partner = {}
    for sent, received in pairs(e for events in calls.values() for e in events if e.is_p2p):
        partner[_key(sent)], partner[_key(received)] = received, sent
    queues = {(rank, group): list(units) for rank, events in calls.items() for group, units in _units(events, partner)}
    if not any(e.asynchronous for units in queues.values() for unit in units for e in unit):
        return ""  # calls that wait have shown it already
    done: set[tuple[int, int]] = set()
    while any(queues.values()):
        at_work = {_key(e): e for units in queues.values() if units for e in units[0]}
        met = {key for key in at_work if _key(partner[key]) in at_work or _key(partner[key]) in done}
        if not met - done:
            first = min((units[0][0] for units in queues.values() if units), key=_key)
            other = partner[_key(first)]
            text = f"{_where(first)} may wait for ever for {_where(other)}, which stands behind other messages: NCCL "
            return text + "runs a rank's messages one after the other. Hand them over at once, to batch_isend_irecv"
        done |= met
        for units in queues.values():
            while units and all(_key(e) in done for e in units[0]):
                del units[0]
    return ""


def _key(event: Event) -> tuple[int, int]:
    return event.rank, event.seq


def _units(events: Iterable[Event], paired: Mapping[tuple[int, int], Event]) -> Iterator[tuple[str, list[Together]]]:
    """A rank's messages in each group, in order, those of a batch together; without halves that have no partner."""
    messages = sorted((e for e in events if e.is_p2p and _key(e) in paired), key=lambda e: e.group_key)
    for group, own in itertools.groupby(messages, key=lambda e: e.group_key):
        units = itertools.groupby(own, key=lambda e: ("batch", e.detail["batch"]) if "batch" in e.detail else e.seq)
        yield group, [list(unit) for _, unit in units]


def _is_collective(event: Event) -> bool:
    return not event.is_p2p and event.op != "new_group"  # making a group sends nothing through NCCL


def _order_of_groups(calls: Mapping[int, Sequence[Event]]) -> str:
    """Two ranks that make the collective calls of two groups, in which both are, in different orders."""
    for one, other in itertools.combinations(calls, 2):
        orders = [[(e.group_key, e.group_seq) for e in calls[r] if _is_collective(e)] for r in (one, other)]
        common = set(orders[0]) & set(orders[1])
        mine, theirs = ([call for call in order if call in common] for order in orders)
        for here, there in zip(mine, theirs, strict=True):
            if here != there:
                at = {(e.group_key, e.group_seq): e for e in calls[one] if _is_collective(e)}
                first, second = at[here], at[there]
                text = f"rank {one} calls {first.op} of group {first.group} before {second.op} of group {second.group}"
                return f"{text}, rank {other} the other way round; with NCCL all ranks need one order over all groups"
    return ""
