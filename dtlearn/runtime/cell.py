"""Runs one notebook cell on ranks: passes its output on, and turns its end, good or bad, into a result or an error."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zmq

from .collect import is_peer_loss
from .errors import Failure, RankError, RanksDisagree, RanksInterrupted, RanksTimeout, Stuck, wrapped
from .explain import comes_before, other_failures, ranks_text, timeout_message
from .kernel_client import RankLink, ask_all
from .recover import recover
from .watch import Watch

if TYPE_CHECKING:
    from .world import World

_PATIENCE = 10.0  # seconds that other ranks may go on computing after one has failed
_AFTER_DEATH = 1.0  # seconds in which ranks usually notice by themselves that a peer has died
_STUCK_FOR = 0.5  # seconds inside one communication call, after a failure elsewhere, that count as stuck
_SHOWN = {"stream", "display_data", "update_display_data", "execute_result", "error", "clear_output"}


class Sink:
    """Receives what the ranks publish while a cell runs. This one ignores it; `notebook.render` shows it."""

    def publish(self, rank: int, message: dict[str, Any]) -> None:
        """One iopub message ("stream", "display_data", "execute_result", "error", ...) of a rank."""

    def tick(self) -> None:
        """Called at least ten times a second while the cell runs."""


@dataclass(frozen=True)
class CellOutcome:
    """How a cell ended that did not fail.

    Attributes:
        ranks: the ranks that it ran on.
        seconds: wall time.
    """

    ranks: list[int]
    seconds: float


class CellError(RankError):
    """A `RankError` that shows in the notebook as the failing rank's own traceback."""

    def _render_traceback_(self) -> list[str]:
        traceback = self.failures[0].traceback
        return [*wrapped(str(self)), *(["", *traceback.splitlines()] if traceback else [])]


def run_cell(world: World, code: str, ranks: list[int], timeout: float | None, number: int, sink: Sink) -> CellOutcome:
    """Run `code` on `ranks` and return when all are done.

    Args:
        world: the ranks.
        code: the cell's text.
        ranks: global ranks to run it on.
        timeout: seconds, or None for no limit.
        number: the notebook's number of this cell, shown in tracebacks.
        sink: receives the output.

    Raises:
        RankError: a rank failed. Others that waited for it were freed.
        RanksDisagree: the ranks' calls do not fit together, or can never end. Likewise.
        RanksTimeout: the time was up. Ranks that were stuck were freed; variables are kept.
        RanksInterrupted: the learner interrupted. Likewise.
    """
    begun = time.monotonic()
    cell = RunningCell(world, code, ranks, number, sink)
    try:
        in_time = cell.follow(None if timeout is None else begun + timeout)
    except KeyboardInterrupt:
        pending = cell.pending()
        text = f"interrupted: {ranks_text(pending) if pending else 'no rank'} had not finished"
        raise RanksInterrupted("\n".join([text, *recover(cell, interrupted=True)])) from None
    diagnosis = cell.watch.last_look(cell.ended())
    if diagnosis and comes_before(diagnosis, first_cause_first(cell.failures)):
        raise RanksDisagree(diagnosis, recover(cell))
    if not in_time:
        assert timeout is not None
        stuck = cell.where()
        raise RanksTimeout("\n".join([timeout_message(stuck, timeout), *recover(cell)]), tuple(stuck))
    if cell.failures:
        waiting = [s for s in cell.where() if s.state == "waiting"]
        notes = recover(cell)
        raise _failure(cell.failures, waiting, notes)
    return CellOutcome(ranks, time.monotonic() - begun)


class RunningCell:
    """A cell that was sent to some ranks, and what is known of it so far."""

    def __init__(self, world: World, code: str, ranks: list[int], number: int, sink: Sink) -> None:
        self.world = world
        self.links: dict[int, RankLink] = {r: world.links[r] for r in ranks}
        self.replied: dict[int, dict[str, Any]] = {}
        self.idle: set[int] = set()
        self.failures: list[Failure] = []
        self._sink = sink
        for link in self.links.values():  # a reply that an earlier, interrupted request left behind
            for _ in link.replies():
                pass
        world.cells += 1
        self.watch = Watch(world.call_logs())
        self._message_ids = {r: link.execute(code, number, world.cells) for r, link in self.links.items()}

    def pending(self) -> list[int]:
        """Ranks that live and have not ended the cell."""
        dead = {f.rank for f in self.failures if f.kind != "raised"}
        return [r for r in self.links if r not in dead and not (r in self.replied and r in self.idle)]

    def ended(self) -> set[int]:
        """Ranks that will make no further call in this cell; those that do not run it never make one."""
        return set(range(self.world.size)) - set(self.pending())

    def follow(self, deadline: float | None) -> bool:
        """Pass on output until the cell is done, stuck, or found at fault. False: the deadline came first."""
        poller = zmq.Poller()
        for link in self.links.values():
            poller.register(link.iopub, zmq.POLLIN)
            poller.register(link.shell, zmq.POLLIN)
        for collector in {p.collector for p in self.world.processes}:
            poller.register(collector.fileno(), zmq.POLLIN)
        failed_at: float | None = None
        next_look = 0.0
        while self.pending():
            poller.poll(50)
            self.listen()
            now = time.monotonic()
            if self.failures and self.pending():
                failed_at = failed_at or now
                died = any(f.kind != "raised" for f in self.failures)
                if now > failed_at + (_AFTER_DEATH if died else _PATIENCE):
                    return True
                if now > max(next_look, failed_at + _STUCK_FOR):
                    next_look = now + _STUCK_FOR
                    if all(s.state != "running" for s in self.where()):
                        return True
            elif self.watch.look(self.ended()) is not None:
                return True
            if deadline is not None and now > deadline:
                return False
        return True

    def wait(self, seconds: float) -> None:
        """Pass on output for a while, or until all ranks are done."""
        deadline = time.monotonic() + seconds
        while self.pending() and time.monotonic() < deadline:
            self.listen()
            time.sleep(0.01)

    def listen(self) -> None:
        """Take in what has arrived: output, replies, deaths."""
        for rank, link in self.links.items():
            ours = self._message_ids[rank]
            for message in link.published():
                kind = message["msg_type"]
                if kind in _SHOWN:
                    self._sink.publish(rank, message)
                elif message["content"].get("execution_state") == "idle":
                    self.idle |= {rank} if message["parent_header"].get("msg_id") == ours else set()
            for message in link.replies():
                if message["parent_header"].get("msg_id") == ours and rank not in self.replied:
                    self.replied[rank] = message
                    if message["content"]["status"] != "ok":
                        self.failures.append(_raised(rank, message))
        self.world.listen()
        known = {f.rank for f in self.failures if f.kind != "raised"}
        for rank in self.links:
            told = self.world.processes[rank].death
            if told is not None and rank not in known:
                self.failures.append(Failure(rank, told.kind, told.type, told.message, "", told.time_ns))
        self._sink.tick()

    def where(self) -> list[Stuck]:
        """Where each rank of the cell stands; those that still run it are asked on the side channel."""
        pending = self.pending()
        replies = ask_all([self.links[r] for r in pending], {"do": "state"}, timeout=1.0, side=True)
        told = dict(zip(pending, replies, strict=True))
        stuck = []
        for rank in self.links:
            reply = told.get(rank)
            if rank not in pending:
                stuck.append(Stuck(rank, "returned"))
            elif reply is None:
                stuck.append(Stuck(rank, "running", "", ("a place that keeps it from answering",)))
            else:
                inside, stack = reply[0]["inside"], tuple(reply[0]["stack"])
                if not inside and not stack:
                    # Idle: an interrupt that arrived just as the cell ended has swallowed the reply.
                    self.idle.add(rank)
                    self.replied.setdefault(rank, {"metadata": {}})
                    stuck.append(Stuck(rank, "returned"))
                elif inside:
                    line, _, code = stack[-1].partition(": ") if stack else ("", "", "")
                    quote = f": {code}" if code and inside.endswith(f", {line}") else ""
                    stuck.append(Stuck(rank, "waiting", inside + quote, stack))
                else:
                    stuck.append(Stuck(rank, "running", "", stack))
        return stuck

    def in_step(self) -> bool:
        """Whether all ranks made the same collective calls in this cell, so that the groups can be used on."""
        if self.watch.diagnosis is not None:  # nobody should trust groups whose calls did not fit
            return False
        told = [m["metadata"].get("ranks", {}) for m in self.replied.values()]
        if len(told) != len(self.links) or any(t.get("others", 1) for t in told):
            return False
        return len({(t["collectives"], t["sequence"]) for t in told}) == 1


def _raised(rank: int, message: dict[str, Any]) -> Failure:
    content = message["content"]
    text = str(content.get("evalue", ""))
    return Failure(
        rank=rank,
        kind="raised",
        type=str(content.get("ename", content["status"])),
        message=text,
        traceback="\n".join(content.get("traceback", [])),
        time_ns=message["metadata"].get("ranks", {}).get("time_ns", 0),
        consequence=is_peer_loss(text),
    )


def first_cause_first(found: list[Failure]) -> list[Failure]:
    """Failures of a cell in the order in which they explain it."""
    return sorted(found, key=lambda f: (f.consequence, f.type == "KeyboardInterrupt", f.kind != "raised", f.time_ns))


def _failure(found: list[Failure], waiting: list[Stuck], notes: list[str]) -> CellError:
    """The error of a failed cell: the first cause with its traceback, the others in a line each."""
    failures = first_cause_first(found)
    first = failures[0]
    same = [f.rank for f in failures if (f.kind, f.type, f.message) == (first.kind, first.type, first.message)]
    verb = f"raised {first.type}: {first.message}" if first.kind == "raised" else first.message
    lines = [f"{ranks_text(same)} {verb}"]
    lines += [f"rank {s.rank} was waiting in {s.call}" for s in waiting]
    # What the freed ranks raised was our own interrupt.
    ours = {f.rank for f in failures if f.type == "KeyboardInterrupt"} | {s.rank for s in waiting}
    return CellError("\n".join([*lines, *other_failures(failures, {*same, *ours}), *notes]), tuple(failures))
