"""How the ranks of a world stand, from three sources: the call log, their stacks, and torch's flight recorder."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..faults.diagnosis import describe_call
from ..rank.flight_recorder import TraceEntry, differs, entry
from ..record.log import read_call_log
from ..record.record import Event
from ..watch.side_by_side import side_by_side
from ..watch.watch import Watch
from ..words import columns
from .rank_client import ask_all

if TYPE_CHECKING:
    from .world import World


@dataclass(frozen=True)
class RankSnapshot:
    """One rank at one moment.

    Attributes:
        rank: global rank.
        state: "idle", "waits", "runs", "does not answer" or "dead".
        call: the call that it waits in, or its last one; None if it has made none.
        line: where it is, for a person.
        seconds: how long it has waited; None unless it waits.
        trace: the latest collectives in torch's flight recorder, oldest first; () where there is none.
        conflict: where that does not agree with the call log; "" if it does.
    """

    rank: int
    state: str
    call: Event | None
    line: str
    seconds: float | None
    trace: tuple[TraceEntry, ...]
    conflict: str


@dataclass(frozen=True)
class Snapshot:
    """All ranks at one moment; as text, a table.

    Attributes:
        ranks: one per rank.
        last_calls: `{rank: its last calls}` in the latest cell.
    """

    ranks: tuple[RankSnapshot, ...]
    last_calls: dict[int, list[Event]]

    def __str__(self) -> str:
        rows = [("", "state", "call", "at", "for", "flight recorder")]
        for one in self.ranks:
            call = describe_call(one.call) if one.call is not None else "none"
            call = call if one.state == "waits" or one.call is None else f"last: {call}"
            seconds = "" if one.seconds is None else f"{one.seconds:.0f} s"
            recorded = str(one.trace[-1]) if one.trace else "nothing"
            rows.append((f"rank {one.rank}", one.state, call, one.line, seconds, recorded))
        lines = columns(rows)
        if conflicts := [f"rank {one.rank}: {one.conflict}" for one in self.ranks if one.conflict]:
            lines += ["The two sources do not agree, so one of them has missed something:", *conflicts]
        if any(self.last_calls.values()):
            lines += ["", "The last calls of the latest cell, side by side:", *side_by_side(self.last_calls)]
        return "\n".join(lines)

    __repr__ = __str__


def take_snapshot(world: World) -> Snapshot:
    """Ask every rank how it stands, on the side channel: it answers while a cell runs or hangs, to any thread.

    Raises:
        DtlearnError: the ranks were stopped.
    """
    links = world.links
    states = dict(enumerate(ask_all(links, {"do": "state"}, timeout=1.0, side=True)))
    traces = dict(enumerate(ask_all(links, {"do": "trace"}, timeout=1.0, side=True)))
    logs = world.call_logs()
    watch = Watch(logs)
    watch.look({rank for rank, reply in states.items() if reply and reply[0]["ended"] >= world.tasks})
    waiting = watch.waiting()
    calls = {rank: read_call_log(path, rank) for rank, path in logs.items()}
    found = []
    for rank, reply in states.items():
        told = reply[0] if reply else None
        wait = waiting.get(rank)
        if not world.processes[rank].alive:
            state = "dead"
        elif told is None:
            state = "does not answer"
        elif told["ended"] >= told["begun"]:
            state = "idle"
        else:
            state = "waits" if wait else "runs"
        call = wait.event if wait else (calls[rank][-1] if calls[rank] else None)
        said = traces[rank]
        entries = tuple(map(entry, (said[0].get("trace") or []) if said else []))
        conflict = differs(calls[rank], entries) if state == "waits" else ""
        line = _line(told["frames"]) if told and state in ("waits", "runs") else ""
        found.append(RankSnapshot(rank, state, call, line, wait.seconds if wait else None, entries, conflict))
    return Snapshot(tuple(found), {rank: events[-8:] for rank, events in calls.items()})


def _line(frames: Sequence[dict[str, object]]) -> str:
    if not frames:
        return ""
    last = frames[-1]
    code = last["code"] or linecache.getline(str(last["file"]), int(str(last["line"]))).strip()
    return f"line {last['line']}: {code}" if code else f"line {last['line']}"
