"""ch01.barrier: each rank is late once; nobody may leave before it has come.

A rank says when it comes and when it has left, and the judge takes the time. The late one is held by the judge: it came
when the judge let it go, and another rank left at the latest when the judge heard of that. So a barrier that holds
passes however slow the machine is; one that does not is caught unless an early rank happens to be slow for as long as
the late one is held, in every round.

With gloo a send lasts until it is received, so that a sender may have waited by accident. The record then shows that no
chain of messages told the rank of the late one: with a library whose sends return at once it would have left.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import ordinal, ranks_text

from ..marks import steps_of
from ..own_work import no_objects

_LATE = 0.06  # seconds
_NEVER_TOLD = "no message, nor a chain of them, told rank {rank} that rank {other} had come: {why}"
_BY_ACCIDENT = (
    "no message, nor a chain of them, told rank {rank} that rank {other} had come: {why}. It was not early this time, "
    "because gloo's sends happen to wait"
)
Times = list[list[tuple[int, int]]]  # by rank and round: when it came, and when it had left


def inputs(case: Case) -> Given:
    return [{} for _ in range(case.world_size)]


def on_rank(answer: Any) -> None:
    import torch.distributed as dist

    from dtlearn.runtime.rank.task import mark

    for _ in range(dist.get_world_size()):
        dist.barrier()
        mark("comes")
        answer()
        mark("left")


def hold(case: Case, rank: int, k: int) -> float:
    """The seconds for which a rank is held: in round r, rank r is late."""
    return _LATE if k == 2 * rank else 0.0


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    n = case.world_size
    steps = steps_of(record, "comes left", [n] * n)
    if isinstance(steps, Finding):
        return steps
    times = [[(comes.answered_ns, left.came_ns) for comes, left in rounds] for rounds in steps]
    # For each rank: those that were late and whose coming it did not wait for.
    missed = {
        rank: {late for late in range(n) if late != rank and times[rank][late][1] < times[late][late][0]}
        for rank in range(n)
    }
    early = [rank for rank in range(n) if missed[rank]]
    if not early:
        return _untold(n, times, record)
    rank = early[0]
    late = min(missed[rank])
    ahead = (times[late][late][0] - times[rank][late][1]) / 1e6
    text = f"rank {rank} left {ahead:.0f} ms before rank {late} came: {_why(n, rank, late, times, record)}"
    return Finding("DTL-VALUE-EARLY", text, rank, None, "Who tells a rank that all have come?")


def _untold(n: int, times: Times, record: Record) -> Finding | None:
    """A rank that left although no chain of messages had told it that another one had come?"""
    if n == 2 and any(not event.is_p2p for event in record):  # the rule on calls says more
        return None
    for late in range(n):
        told = _told(n, late, times, record)
        if n == 2 and any(len(known) == n for known in told):  # half of one fails with more ranks too, which says more
            continue
        for rank in range(n):
            if unknown := set(range(n)) - told[rank]:
                other = min(unknown)
                sent = any(event.sends and event.start_ns >= times[event.rank][late][0] for event in record)
                form = _BY_ACCIDENT if sent else _NEVER_TOLD
                text = form.format(rank=rank, other=other, why=_why(n, rank, other, times, record))
                advice = "A send may return before it is received. Only what a rank receives tells it who has come."
                return Finding("DTL-VALUE-UNTOLD", text, rank, None, advice)
    return None


def _told(n: int, late: int, times: Times, record: Record) -> list[set[int]]:
    """For each rank, those that it can know to have come when it leaves the round of the late one; all, if not every
    call is in the record."""
    if record.incomplete:
        return [set(range(n))] * n
    begin = min(own[late][0] for own in times)
    messages = [(sent, received.rank, _arrived(sent, received)) for sent, received in _messages(record)]

    def known(rank: int, end: int) -> set[int]:
        ranks = {rank}
        for sent, receiver, arrived in messages:
            if receiver == rank and begin <= sent.start_ns <= arrived < end:
                ranks |= known(sent.rank, sent.start_ns)
        return ranks

    return [known(rank, times[rank][late][1]) for rank in range(n)]


def _messages(record: Record) -> list[tuple[Event, Event]]:
    """Sends, each with the receives that may have taken it: more than one where a rank receives from any rank."""
    halves = [event for event in record if event.is_p2p]
    open_ranks = {event.rank for event in halves if not event.sends and event.peer is None}
    may = [
        (sent, received)
        for received in halves
        if received.rank in open_ranks and not received.sends
        for sent in halves
        if sent.sends and sent.peer == received.rank and received.peer in (None, sent.rank)
    ]
    return may + [(sent, received) for sent, received in record.messages() if received.rank not in open_ranks]


def _arrived(sent: Event, received: Event) -> int:
    """The earliest moment when the message can have been there: a receive that nobody waits for has no known end."""
    return max(sent.start_ns, received.start_ns) if received.end_ns is None else received.end_ns


def _why(n: int, early: int, late: int, times: Times, record: Record) -> str:
    """What kind of half a barrier it is, from who hears from whom: the first sentence that holds."""
    hears: dict[int, set[int]] = {rank: set() for rank in range(n)}
    for event in record:
        if event.peer is not None and event.sends:
            hears.setdefault(event.peer, set()).add(event.rank)
    deaf = [rank for rank in range(n) if not hears[rank]]
    mute = [rank for rank in range(n) if not any(rank in others for others in hears.values())]
    pair = sorted({early, *hears[early]})
    came, left = times[early][late]
    calls = [event for event in record if event.rank == early and came <= event.start_ns <= left]
    reach = next((k for k in (2, 4, 8) if all(hears[r] == _powers_left_of(r, k, n) for r in range(n))), n)
    informed = [rank for rank, ranks in enumerate(_told(n, late, times, record)) if len(ranks) == n]
    sentences = {
        "no rank sends anything": len(deaf) == n,
        f"one message passes along the ranks, and rank 0 never hears that it has reached rank {n - 1}": (
            deaf == [0] and mute == [n - 1] and n > 2
        ),
        f"no message comes to {_named(deaf)}": early in deaf,
        f"{_named(pair)} exchange with each other only, and no message comes to or from rank {late}": (
            late in mute and late in deaf and len(pair) == 2 and all(hears[r] == {*pair} - {r} for r in pair)
        ),
        f"no message comes from {_named(mute)}, so nobody can know": late in mute,
        f"in this call, its {ordinal(late + 1)}, it neither sends nor receives anything": not calls,
        f"one message goes once around the ring: only {_named(informed)} then know that all have come": (
            reach == 2 and bool(informed)
        ),
        f"each rank hears from its left neighbour only; with distances 1, 2, 4, ... {n} ranks need "
        f"{math.ceil(math.log2(n))} rounds: log2(N) rounded up": reach == 2 < n,
        f"each rank hears from those at distances up to {reach // 2} only; with distances 1, 2, 4, ... {n} ranks "
        f"need {math.ceil(math.log2(n))} rounds: log2(N) rounded up": reach < n,
        f"it did not wait for the message of rank {late}": late in hears[early],
    }
    sources = _named(hears[early])
    last = f"it hears only from {sources}, and {sources} sent without having heard from rank {late}"
    return next((sentence for sentence, holds in sentences.items() if holds), last)


def _named(ranks: Collection[int]) -> str:
    return ranks_text(list(ranks)) if ranks else "no rank"


def _powers_left_of(rank: int, reach: int, n: int) -> set[int]:
    """The ranks at the distances 1, 2, 4, ... below `reach` to the left."""
    return {(rank - 2**k) % n for k in range(reach.bit_length() - 1)}


CHECK = Check(
    on_rank,
    inputs,
    expected=None,
    verify=verify,
    calls=lambda case: case.world_size,
    rules=[
        rules.only("send", "recv", "isend", "irecv", why="The point is to build it from messages between two ranks.")
    ],
    reads=[no_objects],
    hold=hold,
)
