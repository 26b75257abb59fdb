"""Which calls of a record belong together: a send and its recv, and the ranks' parts of one collective."""

from __future__ import annotations

from collections.abc import Iterable

from dtlearn.runtime.record.collectives import collectives, members
from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.operations import operation_of
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.record.training_steps import RecordedStep, arrival

CallKey = tuple[int, int]  # (rank, seq): names one call of a record


def partners(record: Record) -> dict[CallKey, list[Event]]:
    """The calls of other ranks that each call cannot finish without, as far as the record has them."""
    calls = {(received.rank, received.seq): [sent] for sent, received in record.messages()}
    for together in collectives(record):
        for rank, event in together.items():
            alike = [e for e in together.values() if e.op == event.op]
            calls[rank, event.seq] = _waited_for(event, alike)
    return calls


def data_starts(record: Record) -> dict[CallKey, int | None]:
    """When each call could begin to move data, in ns; until then it waited for another rank.

    A recv waits for its send; a broadcast or scatter waits for its root; the root of a reduce or gather, and every rank
    in the other collectives, waits for the last rank of the group. None: the call never returned and what it waited
    for never came. A call whose partners are not in the record counts as moving data from its own start.
    """
    waited_for = partners(record)
    starts: dict[CallKey, int | None] = {}
    for event in record:
        there = waited_for.get((event.rank, event.seq), [])
        enough = len(there) == _num_waited_for(event, record)
        if not enough and event.end_ns is None:
            starts[event.rank, event.seq] = None
        else:
            starts[event.rank, event.seq] = max([event.start_ns] + [e.start_ns for e in there if enough])
    return starts


def moving_starts(record: Record, steps: list[RecordedStep]) -> dict[CallKey, int]:
    """When the data of each call began to move, in ns, as far as it can be told.

    Not before all ranks had launched it; on an emulated link, whose ports send one thing at a time, not before its turn
    had come.
    """
    starts = data_starts(record)
    one_at_a_time = "emulated link" in record.label
    moving: dict[CallKey, int] = {}
    for step in steps:
        free = 0
        for event in step.events:
            end = arrival(event)
            begin = max(event.start_ns, starts[event.rank, event.seq] or 0, free if one_at_a_time else 0)
            moving[event.rank, event.seq] = begin if end is None else min(begin, end)
            free = max(free, end or 0)
    return moving


def _waited_for(event: Event, together: list[Event]) -> list[Event]:
    """Those of a collective's calls that `event` cannot finish without (itself excepted)."""
    operation = operation_of(event.op)
    if operation.root and operation.peer == "src":
        return [e for e in together if e.rank == event.peer and e.rank != event.rank]
    if operation.root and event.rank != event.peer:
        return []
    return [e for e in together if e.rank != event.rank]


def _num_waited_for(event: Event, record: Record) -> int:
    """How many other calls `event` cannot finish without."""
    if event.is_p2p:
        return int(not event.sends and event.peer is not None)
    operation = operation_of(event.op)
    if operation.root and operation.peer == "src":
        return int(event.rank != event.peer)
    if operation.root and event.rank != event.peer:
        return 0
    return len(members(event.group, range(record.world_size))) - 1


def pack(events: Iterable[Event], end_of_time: int) -> tuple[dict[CallKey, int], int]:
    """Place calls of one rank that overlap in time on rows of their own.

    Returns:
        The row of each call, from 0, and the number of rows (at least 1).
    """
    rows: dict[CallKey, int] = {}
    free_at: list[int] = []
    for event in sorted(events, key=lambda e: (e.start_ns, e.seq)):
        end = end_of_time if event.end_ns is None else event.end_ns
        row = next((i for i, free in enumerate(free_at) if free <= event.start_ns), len(free_at))
        if row == len(free_at):
            free_at.append(end)
        else:
            free_at[row] = end
        rows[event.rank, event.seq] = row
    return rows, max(1, len(free_at))
