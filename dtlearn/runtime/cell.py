"""Runs one notebook cell on ranks, and makes the ranks usable again when the cell fails, hangs or is interrupted."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import zmq

from .collect import is_peer_loss
from .errors import Failure, RankError, RanksInterrupted, RanksTimeout, Stuck
from .explain import ranks_text, timeout_message
from .kernel_client import RankLink, ask_all

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


@dataclass
class CellOutcome:
    """How a cell ended that did not fail.

    Attributes:
        ranks: the ranks that it ran on.
        seconds: wall time.
        errors: empty; filled while the cell runs.
    """

    ranks: list[int]
    seconds: float = 0.0
    errors: list[Failure] = field(default_factory=list)


@dataclass
class _Progress:
    """What is known of the running cell."""

    message_ids: dict[int, str]
    replied: dict[int, dict[str, Any]] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)
    failures: list[Failure] = field(default_factory=list)
    failed_at: float | None = None

    def pending(self) -> list[int]:
        dead = {f.rank for f in self.failures if f.kind != "raised"}
        return [r for r in self.message_ids if r not in dead and not (r in self.replied and r in self.idle)]


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
        RanksTimeout: the time was up. Ranks that were stuck were freed; variables are kept.
        RanksInterrupted: the learner interrupted. Likewise.
    """
    begun = time.monotonic()
    links = {r: world.links[r] for r in ranks}
    _drop_stale(links)
    progress = _Progress({r: link.execute(code, number) for r, link in links.items()})
    try:
        in_time = _follow(world, links, progress, None if timeout is None else begun + timeout, sink)
    except KeyboardInterrupt:
        pending = progress.pending()
        notes = _recover(world, links, progress, sink)
        text = f"interrupted: {ranks_text(pending) if pending else 'no rank'} had not finished"
        raise RanksInterrupted("\n".join([text, *notes])) from None
    if not in_time:
        stuck = _where(world, links, progress)
        notes = _recover(world, links, progress, sink)
        assert timeout is not None
        raise RanksTimeout("\n".join([timeout_message(stuck, timeout), *notes]), tuple(stuck))
    if progress.failures:
        waiting = [s for s in _where(world, links, progress) if s.state == "waiting"] if progress.pending() else []
        notes = _recover(world, links, progress, sink)
        raise _failure(progress, waiting, notes)
    return CellOutcome(ranks, time.monotonic() - begun)


def _drop_stale(links: dict[int, RankLink]) -> None:
    for link in links.values():
        for _ in link.replies():
            pass


def _follow(world: World, links: dict[int, RankLink], progress: _Progress, deadline: float | None, sink: Sink) -> bool:
    """Pass on output until the cell is done, or stuck after a failure. False: the deadline came first."""
    poller = zmq.Poller()
    for link in links.values():
        poller.register(link.iopub, zmq.POLLIN)
        poller.register(link.shell, zmq.POLLIN)
    for collector in {p.collector for p in world.processes}:
        poller.register(collector.fileno(), zmq.POLLIN)
    next_look = 0.0
    while progress.pending():
        poller.poll(50)
        _hear(world, links, progress, sink)
        now = time.monotonic()
        if progress.failures and progress.pending():
            progress.failed_at = progress.failed_at or now
            died = any(f.kind != "raised" for f in progress.failures)
            if now > progress.failed_at + (_AFTER_DEATH if died else _PATIENCE):
                return True
            if now > max(next_look, progress.failed_at + _STUCK_FOR):
                next_look = now + _STUCK_FOR
                if all(s.state == "waiting" for s in _where(world, links, progress) if s.state != "returned"):
                    return True
        if deadline is not None and now > deadline:
            return False
    return True


def _hear(world: World, links: dict[int, RankLink], progress: _Progress, sink: Sink) -> None:
    for rank, link in links.items():
        ours = progress.message_ids[rank]
        for message in link.published():
            kind = message["msg_type"]
            if kind == "status" and message["content"]["execution_state"] == "idle":
                if message["parent_header"].get("msg_id") == ours:
                    progress.idle.add(rank)
            elif kind in _SHOWN:
                sink.publish(rank, message)
        for message in link.replies():
            if message["parent_header"].get("msg_id") == ours and rank not in progress.replied:
                progress.replied[rank] = message
                content = message["content"]
                if content["status"] != "ok":
                    progress.failures.append(_raised(rank, message))
    world.listen()
    known = {f.rank for f in progress.failures if f.kind != "raised"}
    for rank in links:
        process = world.processes[rank]
        if not process.alive and rank not in known:
            told = process.collector.ranks[process.index].failure
            assert told is not None
            progress.failures.append(Failure(rank, told.kind, told.type, told.message, "", told.time_ns))
    sink.tick()


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


def _where(world: World, links: dict[int, RankLink], progress: _Progress) -> list[Stuck]:
    """Where each rank of the cell stands, asked on the side channel."""
    pending = progress.pending()
    replies = dict(
        zip(pending, ask_all([links[r] for r in pending], {"do": "state"}, timeout=1.0, side=True), strict=True)
    )
    stuck = []
    for rank in links:
        reply = replies.get(rank)
        if rank not in pending:
            stuck.append(Stuck(rank, "returned"))
        elif reply is None:
            stuck.append(Stuck(rank, "running", "", ("a place that keeps it from answering",)))
        else:
            inside, stack = reply[0]["inside"], reply[0]["stack"]
            line = f" ({stack[-1]})" if inside and stack else ""
            stuck.append(Stuck(rank, "waiting" if inside else "running", (inside or "") + line, tuple(stack)))
    return stuck


def _recover(world: World, links: dict[int, RankLink], progress: _Progress, sink: Sink) -> list[str]:
    """Bring every rank back to idle, with variables where possible. Returns what the learner has to know."""
    notes: list[str] = []
    try:
        cut = _free(world, links, progress, sink, notes)
        world.listen()
        if cut or any(not p.alive for p in world.processes) or not _in_step(progress):
            replaced = world.repair()
            if replaced:
                notes.append(
                    f"{ranks_text(replaced)} got a new process: its variables are lost; setup cells were run again there."
                )
            notes.append(
                "The process groups were made again. Variables are kept, but wrap models in DistributedDataParallel "
                "again, and make your own groups and meshes again."
            )
    except (KeyboardInterrupt, RankError):
        world.restart()
        notes.append("All ranks were restarted: their variables are lost; setup cells were run again.")
    return notes


def _free(world: World, links: dict[int, RankLink], progress: _Progress, sink: Sink, notes: list[str]) -> bool:
    """Interrupt, then cut the connections, then kill. True: connections were cut."""
    if pending := progress.pending():
        world.interrupt(pending)
        _wait(world, links, progress, sink, 0.3)
    if (pending := progress.pending()) and not all(
        s.state == "waiting" for s in _where(world, links, progress) if s.rank in pending
    ):
        _wait(world, links, progress, sink, 1.0)
    cut = False
    if progress.pending():
        living = [p.link for p in world.processes if p.alive]
        ask_all(living, {"do": "abort"}, timeout=2.0, side=True)
        cut = True
        _wait(world, links, progress, sink, 3.0)
    for one in _where(world, links, progress) if progress.pending() else []:
        # An interrupt that arrives just as the cell ends can swallow the reply: the rank is idle all the same.
        if one.state == "running" and not one.stack:
            progress.idle.add(one.rank)
            progress.replied.setdefault(one.rank, {"metadata": {}})
    if pending := progress.pending():
        notes.append(f"{ranks_text(pending)} did not answer and had to be ended.")
        world.kill(pending)
    return cut


def _wait(world: World, links: dict[int, RankLink], progress: _Progress, sink: Sink, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while progress.pending() and time.monotonic() < deadline:
        _hear(world, links, progress, sink)
        time.sleep(0.01)


def _in_step(progress: _Progress) -> bool:
    """Whether all ranks made the same collective calls in this cell, so that the groups can be used on."""
    told = [m["metadata"].get("ranks", {}) for m in progress.replied.values()]
    if len(told) != len(progress.message_ids) or any(t.get("others", 1) for t in told):
        return False
    return len({(t["collectives"], t["sequence"]) for t in told}) == 1


def _failure(progress: _Progress, waiting: list[Stuck], notes: list[str]) -> RankError:
    """The error of a failed cell: the first cause with its traceback, the others in a line each."""
    failures = sorted(progress.failures, key=lambda f: (f.consequence, f.type == "KeyboardInterrupt", f.time_ns))
    first = failures[0]
    same = [f.rank for f in failures if (f.kind, f.type, f.message) == (first.kind, first.type, first.message)]
    verb = f"raised {first.type}: {first.message}" if first.kind == "raised" else first.message
    lines = [f"{ranks_text(same)} {verb}"]
    lines += [f"rank {s.rank} was waiting in {s.call}" for s in waiting]
    # Ranks that this module itself interrupted are not news.
    freed = {s.rank for s in waiting}
    for failure in failures:
        if failure.rank not in same and failure.rank not in freed and failure.type != "KeyboardInterrupt":
            what = f"{failure.type}: {failure.message}" if failure.type else failure.message
            lines.append(f"rank {failure.rank}: {what.splitlines()[0][:200]}")
    return CellError("\n".join([*lines, *notes]), tuple(failures))


class CellError(RankError):
    """A `RankError` that shows in the notebook as the failing rank's own traceback."""

    def _render_traceback_(self) -> list[str]:
        first = self.failures[0]
        return (
            [*str(self).splitlines(), "", *first.traceback.splitlines()] if first.traceback else str(self).splitlines()
        )
