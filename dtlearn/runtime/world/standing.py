"""How the ranks of a world stand: by what they say themselves, by their call logs, and by torch's flight recorder."""

import linecache
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..faults.diagnosis import describe_call
from ..faults.stacks import Frame
from ..machine.patience import TO_ANSWER, TO_CUT
from ..rank.flight_recorder import TraceEntry, differs, entry
from ..record.event import Event
from ..record.log import read_call_log
from ..watch.side_by_side import side_by_side
from ..watch.watch import Watch
from ..words import columns
from .rank_client import ask_all
from .ranks import RankProcesses


@dataclass(frozen=True)
class Standing:
    """One rank at one moment, as it says itself."""

    rank: int  # global
    state: str  # "idle", "waits" (in a call), "runs", "does not answer" or "dead"
    inside: str = ""  # the call that it is in, for a person; "" if it is in none
    frames: tuple[Frame, ...] = ()  # where its main thread is in the learner's code, outermost first
    cpu_seconds: float | None = None  # processor time that it has used so far; None if it did not answer
    begun: int = -1  # number of the latest cell or request that it has begun
    ended: int = -1  # number of the latest one that it has ended

    @property
    def line(self) -> str:
        """The line that it is at, for a person."""
        return str(self.frames[-1]) if self.frames else ""

    def __str__(self) -> str:
        if self.state == "runs":
            return f"running, {self.line}" if self.frames else "running"
        return self.inside if self.state == "waits" else self.state


def ask_standing(ranks: RankProcesses, asked: Sequence[int] | None = None, *, seconds: float) -> list[Standing]:
    """Ask ranks (None: all) how they stand, on the side channel: they answer while a cell runs or hangs, to any thread.

    After so many seconds, of patience, a rank counts as one that does not answer. Raises DtlearnError if they were
    stopped.
    """
    clients = ranks.clients
    asked = range(ranks.size) if asked is None else asked
    living = [clients[rank] for rank in asked if ranks.processes[rank].alive]
    replies = ask_all(living, {"do": "state"}, patience=ranks.patience(seconds, asked), side=True)
    answers = {client.rank: reply for client, reply in zip(living, replies, strict=True)}
    return [_standing(rank, answers.get(rank), rank in answers) for rank in asked]


def _standing(rank: int, reply: tuple[dict[str, Any], bytes] | None, alive: bool) -> Standing:
    if reply is None:
        return Standing(rank, "does not answer" if alive else "dead")
    answer = reply[0]
    inside = answer["inside"] or ""
    state = "idle" if answer["ended"] >= answer["begun"] else "waits" if inside else "runs"
    frames = tuple(map(_frame, answer["frames"]))
    return Standing(rank, state, inside, frames, answer["cpu_seconds"], answer["begun"], answer["ended"])


def _frame(plain: dict[str, Any]) -> Frame:
    """A frame as a rank describes it. Functions of the notebook have their source here."""
    loop = tuple(plain["loop"]) if plain["loop"] else None
    code = plain["code"] or linecache.getline(plain["file"], plain["line"]).strip()
    return Frame(plain["file"], plain["line"], plain["name"], code, loop, plain["inside"])


def status_rows(ranks: RankProcesses) -> list[dict[str, Any]]:
    """One row per rank: rank, pid, device, state (see `Standing`, as text); on a lab, host too."""
    if not ranks.processes:
        return []
    ranks.listen()
    rows = []
    for standing in ask_standing(ranks, seconds=TO_CUT):
        process = ranks.processes[standing.rank]
        device = ranks.placement.devices[standing.rank]
        rows.append({"rank": standing.rank, **ranks.agent.where(process.pid), "device": device, "state": str(standing)})
    return rows


@dataclass(frozen=True)
class RankSnapshot(Standing):
    """A rank's standing beside what its call log and torch say."""

    call: Event | None = None  # the call that it waits in, or its last one; None if it has made none
    seconds: float | None = None  # how long it has waited; None unless it waits
    trace: tuple[TraceEntry, ...] = ()  # the latest collectives in torch's flight recorder, oldest first
    conflict: str = ""  # where that does not agree with the call log; "" if it does


@dataclass(frozen=True)
class Snapshot:
    """All ranks at one moment; as text, a table."""

    ranks: tuple[RankSnapshot, ...]
    last_calls: dict[int, list[Event]]  # of the latest cell, by rank

    def __str__(self) -> str:
        rows = [("", "state", "call", "at", "for", "flight recorder")]
        for s in self.ranks:
            call = describe_call(s.call) if s.call is not None else "none"
            call = call if s.state == "waits" or s.call is None else f"last: {call}"
            seconds = "" if s.seconds is None else f"{s.seconds:.0f} s"
            recorded = str(s.trace[-1]) if s.trace else "nothing"
            line = s.line if s.state in ("waits", "runs") else ""
            rows.append((f"rank {s.rank}", s.state, call, line, seconds, recorded))
        lines = columns(rows)
        if conflicts := [f"rank {s.rank}: {s.conflict}" for s in self.ranks if s.conflict]:
            lines += ["The two sources do not agree, so one of them has missed something:", *conflicts]
        if any(self.last_calls.values()):
            lines += ["", "The last calls of the latest cell, side by side:", *side_by_side(self.last_calls)]
        return "\n".join(lines)

    __repr__ = __str__


def take_snapshot(ranks: RankProcesses) -> Snapshot:
    """How every rank stands, from all three sources. Raises DtlearnError if they were stopped."""
    standings = ask_standing(ranks, seconds=TO_ANSWER)
    answering = [ranks.clients[s.rank] for s in standings if s.cpu_seconds is not None]
    replies = ask_all(answering, {"do": "trace"}, patience=ranks.patience(TO_ANSWER), side=True)
    answers = zip(answering, replies, strict=True)
    traces = {client.rank: reply[0].get("trace") or [] for client, reply in answers if reply}
    logs = ranks.call_logs()
    watch = Watch(logs)
    watch.look({s.rank for s in standings if s.ended >= ranks.tasks})
    waiting = watch.waiting()
    calls = {rank: read_call_log(path, rank) for rank, path in logs.items()}
    snapshots = []
    for standing in standings:
        wait, events = waiting.get(standing.rank), calls[standing.rank]
        if standing.state in ("waits", "runs"):  # the log tells for certain, also of calls that no Python code makes
            standing = replace(standing, state="waits" if wait else "runs")
        entries = tuple(map(entry, traces.get(standing.rank) or []))
        snapshots.append(
            RankSnapshot(
                **vars(standing),
                call=wait.event if wait else (events[-1] if events else None),
                seconds=wait.seconds if wait else None,
                trace=entries,
                conflict=differs(events, entries) if standing.state == "waits" else "",
            )
        )
    return Snapshot(tuple(snapshots), {rank: events[-8:] for rank, events in calls.items()})
