"""Runs one notebook cell on ranks: passes its output on, and turns its end, good or bad, into a result or an error."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import CellError, RankError, RanksDisagree, RanksInterrupted, RanksTimeout
from ..faults.failure import Failure, first_cause_first, is_peer_loss
from ..faults.stacks import Stuck
from ..machine.limits import Limits
from ..output import Sink
from ..watch.explain import comes_before, explain_limit, other_failures
from ..watch.timeouts import timeout_message
from ..words import ranks_text
from .incomplete import cell_faults, forget_faults
from .rank_client import RankLink
from .recovery import recover
from .task import Running

if TYPE_CHECKING:
    from .world import World

_SHOWN = {"stream", "display_data", "update_display_data", "execute_result", "error", "clear_output"}


@dataclass(frozen=True)
class CellOutcome:
    """How a cell ended that did not fail.

    Attributes:
        ranks: the ranks that it ran on.
        seconds: wall time.
    """

    ranks: list[int]
    seconds: float


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
    finish(RunningCell(world, code, ranks, number, sink), timeout)
    return CellOutcome(ranks, time.monotonic() - begun)


def finish(running: Running, timeout: float | None, what: str = "") -> None:
    """Wait until the ranks are done, for at most `timeout` seconds.

    Args:
        running: what they do.
        timeout: None for no limit.
        what: leads every message.

    Raises:
        As `run_cell`.
    """
    try:
        _finish(running, timeout, what)
    except KeyboardInterrupt:
        pending = running.pending()
        text = f"{what}interrupted: {ranks_text(pending) if pending else 'no rank'} had not finished"
        raise RanksInterrupted("\n".join([text, *recover(running, interrupted=True)])) from None


def _finish(running: Running, timeout: float | None, what: str) -> None:
    in_time = running.follow(None if timeout is None else time.monotonic() + timeout)
    diagnosis = running.watch.last_look(running.ended()) if not cell_faults(running.world) else None
    last_calls = running.watch.last_calls()
    failures = first_cause_first(running.failures)
    error: RankError | RanksTimeout | None = None
    if diagnosis and comes_before(diagnosis, failures):
        error = RanksDisagree(diagnosis, recover(running))
    elif not in_time:
        assert timeout is not None
        stuck, diagnosis = running.judged()
        text = what + timeout_message(stuck, timeout, diagnosis)
        error = RanksTimeout("\n".join([text, *recover(running)]), tuple(stuck), None, diagnosis)
    elif failures:
        waiting = [s for s in running.where() if s.state == "waiting"]
        error = _failure(failures, waiting, recover(running), what, running.world.processes[0].collector.limits)
    if error is not None:
        error.last_calls = last_calls
        raise error


class RunningCell(Running):
    """A cell that was sent to some ranks, and what is known of it so far."""

    def __init__(self, world: World, code: str, ranks: list[int], number: int, sink: Sink) -> None:
        world.tasks += 1
        world.cells = world.tasks
        super().__init__(world, ranks, world.tasks, world.call_logs())
        self.idle: set[int] = set()
        self._sink = sink
        self._code = code
        forget_faults(world)
        self._message_ids = {r: link.execute(code, number, self.task) for r, link in self.links.items()}

    def source(self, file: str) -> str:
        from ipykernel.compiler import get_file_name

        return self._code if os.path.basename(get_file_name(self._code)) == os.path.basename(file) else ""

    def done(self, rank: int) -> bool:
        return rank in self.replied and rank in self.idle

    def missed(self, rank: int) -> None:
        super().missed(rank)
        self.idle.add(rank)

    def hear(self, rank: int, link: RankLink) -> None:
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

    def listen(self) -> None:
        super().listen()
        self._sink.tick()

    def notice(self, text: str) -> None:
        self._sink.notice(text)

    def in_step(self) -> bool:
        found = self.watch.diagnosis
        if found is not None and found.code != "DTL-ASYNC-WAIT":  # nobody should trust groups whose calls did not fit
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


def _failure(
    failures: tuple[Failure, ...], waiting: list[Stuck], notes: list[str], what: str, limits: Limits
) -> CellError:
    """The error of a failed cell: the first cause with its traceback, the others in a line each."""
    first = failures[0]
    same = [f.rank for f in failures if (f.kind, f.type, f.message) == (first.kind, first.type, first.message)]
    verb = f"raised {first.type}: {first.message}" if first.kind == "raised" else first.message
    lines = [f"{what}{ranks_text(same)} {verb}"]
    lines += [advice] if (advice := explain_limit(first, limits)) else []
    lines += [f"rank {s.rank} was waiting in {s.call}" for s in waiting]
    # What the freed ranks raised was our own interrupt.
    ours = {f.rank for f in failures if f.type == "KeyboardInterrupt"} | {s.rank for s in waiting}
    return CellError("\n".join([*lines, *other_failures(failures, {*same, *ours}), *notes]), failures)
