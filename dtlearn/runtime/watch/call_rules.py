"""The rules of the watch, as pure functions of what each rank has called: do the calls fit, and can they ever end?

A call is compared with the call of the same number, on the same group, of every other member. What must be equal
depends on the operation: a scatter's root hands in a list and the others nothing, so shapes may differ there.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace

from ..faults.diagnosis import Diagnosis, lines_hint, parted_hint
from ..record.collectives import by_group, members
from ..record.event import Event
from ..record.operations import operation_of
from ..words import counted, parties_text, ranks_text
from .message_rules import (
    RankView,
    awaits_anyone,
    find_dropped_half,
    find_misfit,
    find_stranger,
    half,
    has_threads,
    message_deadlock,
    partner,
    settled_messages,
    unmatched,
)

# What must be equal -> the code where it is not, and its name for one value and for several.
_UNEQUAL = {
    "peer": ("DTL-COLL-ROOT", "root", "roots"),
    "detail.reduce_op": ("DTL-COLL-OP", "the reduction", "reductions"),
    "dtype": ("DTL-COLL-DTYPE", "dtype", "dtypes"),
    "shape": ("DTL-COLL-SHAPE", "shape", "shapes"),
    "detail.ranks": ("DTL-COLL-ORDER", "the ranks", "ranks"),
}


def find_mismatch(views: Mapping[int, RankView], fitting: dict[str, set[int]] | None = None) -> Diagnosis | None:
    """The first calls that are paired and do not fit. They are a fault whether or not anything hangs.

    `fitting`, by group, has the numbers of the calls that were compared before: those that all members have made are
    added to it, and not compared again.
    """
    fitting = {} if fitting is None else fitting
    for group, histories in by_group(view.calls for view in views.values()).items():
        everybody, known = len(members(group, views)), fitting.setdefault(group, set())
        for k in sorted(set().union(*histories.values()) - known):
            here = {r: calls[k] for r, calls in sorted(histories.items()) if k in calls}
            if len(here) > 1 and (fault := _compare(here)):
                before = {r: [calls[j] for j in sorted(calls) if j < k] for r, calls in histories.items() if r in here}
                hint = parted_hint(before) or (lines_hint(here) if fault.code == "DTL-COLL-SHAPE" else "")
                return replace(fault, hint=hint)
            known |= {k} if len(here) == everybody else set()
    return find_stranger(views) or find_misfit(views)


def find_deadlock(views: Mapping[int, RankView]) -> Diagnosis | None:
    """Ranks that wait for one that has ended, or for each other. None while anybody can still make progress."""
    if fault := find_dropped_half(views):
        return fault
    waiting = {rank for rank, view in views.items() if view.blocked is not None and not has_threads(view)}
    awaited = {rank: _waits_for(rank, views[rank], views) for rank in waiting}
    anyone = {rank: set(views) - {rank} for rank in waiting if awaits_anyone(rank, views)}
    stuck = {rank for rank, others in awaited.items() if others} | anyone.keys()
    gone = {rank for rank, view in views.items() if view.ended}
    while free := {r for r in stuck if (anyone[r] - stuck - gone if r in anyone else not awaited[r] & (stuck | gone))}:
        stuck -= free
    if not stuck:
        return None
    blocked = {rank: views[rank].blocked for rank in sorted(stuck)}
    absent = sorted(set().union(*(awaited[r] for r in stuck)) & gone)
    if all(event is not None and event.is_p2p for event in blocked.values()):
        return message_deadlock(blocked, absent, views)
    calls = {rank: event for rank, event in blocked.items() if event is not None and not event.is_p2p}
    messages = {rank: event for rank, event in blocked.items() if event is not None and event.is_p2p}
    if fault := _apart(calls, views):
        return fault
    lacking = [rank for rank in absent if any(rank in members(event.group_key, views) for event in calls.values())]
    if messages and not lacking:  # a half of a message alone is the cause of what waits in other calls
        states = dict.fromkeys(blocked, "waits")
        return Diagnosis("DTL-P2P-UNMATCHED", unmatched([*messages.values()]), tuple(messages), blocked, states)
    if lacking:
        theirs = {r: event for r, event in calls.items() if {*lacking} & {*members(event.group_key, views)}}
        others = {r: event for r, event in blocked.items() if r not in theirs}
        fault = skipped(theirs, lacking, views)
        headline = "; ".join([fault.headline, *(half(event) for event in messages.values())])
        states = {**fault.states, **dict.fromkeys(others, "waits")}
        return replace(fault, headline=headline, calls={**fault.calls, **others}, states=states)
    groups = {event.group_key for event in calls.values()}
    code = "DTL-COLL-GROUPS" if len(groups) > 1 else "DTL-COLL-ORDER"
    headline = f"{ranks_text(list(blocked))} wait for each other in different calls"
    return Diagnosis(code, headline, tuple(blocked), blocked, dict.fromkeys(blocked, "waits"))


def _apart(calls: Mapping[int, Event], views: Mapping[int, RankView]) -> Diagnosis | None:
    """Two ranks that wait in the same line, each in a group that both are in, and not in the same one."""
    for a, b in itertools.combinations(calls, 2):
        mine, other = calls[a], calls[b]
        alike = (mine.op, mine.file, mine.line) == (other.op, other.file, other.line)
        in_both = b in members(mine.group_key, views) and a in members(other.group_key, views)
        if alike and in_both and mine.group_key != other.group_key:
            groups = {rank: f"{e.op} in {_group_name(e)}" for rank, e in calls.items()}
            headline = parties_text(groups, "call ", "call ", f"{mine.op} in different groups")
            states = dict.fromkeys(calls, "waits")
            return Diagnosis("DTL-COLL-GROUPS", headline, tuple(sorted(calls)), dict(sorted(calls.items())), states)
    return None


def _group_name(event: Event) -> str:
    return f"group {event.group}" if event.group != "world" else "the default group"


def settled(views: Mapping[int, RankView], keep: int) -> dict[int, set[int]]:
    """Numbers of calls, by rank, that every member has made, but for the last `keep` of each group; and of messages
    that were sent and received. They can go without changing what the rules above find."""
    done: dict[int, set[int]] = {rank: set() for rank in views}
    for group, histories in by_group(view.calls for view in views.values()).items():
        if set(histories) == set(members(group, views)):
            bound = min(max(calls) for calls in histories.values()) - keep
            for rank, calls in histories.items():
                done[rank] |= {event.seq for k, event in calls.items() if k <= bound}
    for event in settled_messages(views):
        done[event.rank].add(event.seq)
    return done


def _compare(calls: Mapping[int, Event]) -> Diagnosis | None:
    first = next(iter(calls.values()))
    states = dict.fromkeys(calls, "called")
    number = f"as call number {first.group_seq + 1} of their group"
    if len({e.op for e in calls.values()}) > 1:
        who = parties_text({r: e.op for r, e in calls.items()}, "call ", "call ", "different operations")
        return Diagnosis("DTL-COLL-ORDER", f"{who}, {number}", tuple(calls), calls, states)
    uneven = any(e.detail.get("uneven") for e in calls.values())  # NCCL can gather parts of different sizes
    for what in operation_of(first.op).must_be_equal:
        if not (uneven and what == "shape") and len({_compared(e, what) for e in calls.values()}) > 1:
            code, single, several = _UNEQUAL[what]
            values = {r: f"{single} {_attribute(e, what)}" for r, e in calls.items()}
            headline = f"{parties_text(values, f'call {first.op} with ', 'with ', f'different {several}')}, {number}"
            return Diagnosis(code, headline, tuple(calls), calls, states)
    return _unequal_splits(calls, states, number)


def _unequal_splits(calls: Mapping[int, Event], states: dict[int, str], number: str) -> Diagnosis | None:
    """Two ranks of an `all_to_all_single` of which one sends the other more or less than that has room for."""
    splits = {rank: event.detail["splits"] for rank, event in calls.items() if "splits" in event.detail}
    ranks = members(next(iter(calls.values())).group, range(max(calls) + 1))
    for sender, receiver in itertools.product(splits, splits):
        sent, room = splits[sender][0][ranks.index(receiver)], splits[receiver][1][ranks.index(sender)]
        if sent != room:
            width = math.prod((calls[sender].shape or ())[1:])  # elements of a row
            unit, width = ("element", 1) if width < 2 or room % width else ("row", width)
            headline = f"rank {sender} sends {counted(sent // width, unit)} to rank {receiver} (input_split_sizes), "
            headline += f"which has room for {room // width:,} (output_split_sizes), {number}"
            pair = {rank: calls[rank] for rank in (sender, receiver)}
            return Diagnosis("DTL-COLL-SPLITS", headline, tuple(pair), pair, {r: states[r] for r in pair})
    return None


def _compared(event: Event, what: str) -> str:
    """The attribute to compare; for a shape only its number of elements: with gloo and with NCCL (6,) fits (2, 3)."""
    is_shape = what == "shape" and event.shape is not None
    return str(math.prod(event.shape or ())) if is_shape else _attribute(event, what)


def _attribute(event: Event, what: str) -> str:
    value = event.detail.get(what.removeprefix("detail.")) if what.startswith("detail.") else getattr(event, what)
    return str(value)


def _waits_for(rank: int, view: RankView, views: Mapping[int, RankView]) -> set[int]:
    """The ranks whose call the blocked call of `rank` still needs."""
    event = view.blocked
    assert event is not None
    if not event.is_p2p:
        key, k = event.group_key, event.group_seq
        alike = (e for view in views.values() for e in view.calls if e.group_seq == k and e.group_key == key)
        return {*members(key, views)} & views.keys() - {e.rank for e in alike if not e.is_p2p}
    if event.peer is None or event.peer not in views:  # from any rank: see `awaits_anyone`
        return set()
    return set() if partner(event, views) else {event.peer}


def skipped(
    blocked: Mapping[int, Event | None], absent: list[int], views: Mapping[int, RankView], verb: str = "wait in"
) -> Diagnosis:
    waiting = [r for r, e in blocked.items() if e is not None]
    first = blocked[waiting[0]]
    assert first is not None
    absent = [r for r in absent if r in members(first.group_key, views)]
    calls: dict[int, Event | None] = {**blocked, **dict.fromkeys(absent)}
    state = "waits" if verb == "wait in" else "made this call"
    states = {**dict.fromkeys(blocked, state), **dict.fromkeys(absent, "ended")}
    verb = verb.replace("wait", "waits") if len(waiting) == 1 else verb
    headline = f"{ranks_text(waiting)} {verb} {first.op} number {first.group_seq + 1} of their group; "
    headline += f"{ranks_text(absent)} ended without making that call"
    ranks, key = sorted([*waiting, *absent]), first.group_key
    histories = {r: [e for e in views[r].calls if not e.is_p2p and e.group_key == key] for r in ranks}
    hint = _in_another_group(first, absent, views) or parted_hint(histories)
    return Diagnosis("DTL-COLL-SKIP", headline, tuple(absent), calls, states, hint)


def _in_another_group(call: Event, absent: list[int], views: Mapping[int, RankView]) -> str:
    """Where one of these ranks made the call of the same line in another group; "" if none did."""
    for event in (e for rank in absent for e in views[rank].calls if e.group_key != call.group_key):
        if (event.op, event.line, event.code) == (call.op, call.line, call.code):
            here, there = _group_name(call), _group_name(event)
            if event.detail.get("group_id") == "":  # a member's group has a name
                there = "a group that it is no member of, where the call does nothing"
            return f"In line {call.line} rank {event.rank} calls {event.op} in {there}; rank {call.rank} in {here}."
    return ""
