"""Runs one notebook cell on ranks: passes its output on, and turns its end, good or bad, into a result or an error."""

import os
import time

from ..errors import RanksInterrupted
from ..faults.failure import Failure
from ..output import Sink
from ..watch.verdict import find_error
from ..words import ranks_text
from .rank_client import RankClient
from .ranks import RankProcesses
from .recovery import recover
from .task import Task

_SHOWN = {"stream", "display_data", "update_display_data", "execute_result", "error", "clear_output"}


def finish(task: Task, timeout: float | None, what: str = "", patient: bool = False) -> None:
    """Wait until the ranks are done, for `timeout` seconds at most; make them usable again if that ended badly.

    `what` leads every message. `patient`: time in which ranks wait for a processor does not count.

    Raises:
        RankError: a rank failed. Others that waited for it were freed.
        RanksDisagree: the ranks' calls do not fit together, or can never end. Likewise.
        RanksTimeout: the time was up. Ranks that were stuck were freed; variables are kept.
        RanksInterrupted: the learner interrupted. Likewise.
    """
    begun, patience = time.monotonic(), None

    def over() -> bool:
        return timeout is not None and (patience.over() if patience else time.monotonic() > begun + timeout)

    try:
        patience = task.patience(timeout) if patient and timeout else None
        in_time = task.follow(over)
        if not in_time:
            task.notice(f"the time limit of {timeout:g} s has passed: the ranks are looked at and interrupted")
        error = find_error(task, None if in_time else timeout, what)
        if error is not None:
            recovery = recover(task)
            error.add_lines(recovery.notes)
            error.lost = tuple(recovery.lost)
            raise error
    except KeyboardInterrupt:
        pending = task.pending()
        text = f"{what}interrupted: {ranks_text(pending) if pending else 'no rank'} had not finished"
        raise RanksInterrupted("\n".join([text, *recover(task, interrupted=True).notes])) from None


class Cell(Task):
    """A cell that was sent to some ranks (global ones), and what is known of it so far. `number`: the notebook's."""

    def __init__(self, ranks: RankProcesses, code: str, asked: list[int], number: int, sink: Sink) -> None:
        super().__init__(ranks, asked, logged=True)
        self.idle: set[int] = set()
        self._sink = sink
        self._code = code
        self._message_ids = {r: client.execute(code, number, self.number) for r, client in self.clients.items()}

    def source(self, file: str) -> str:
        from ipykernel.compiler import get_file_name

        return self._code if os.path.basename(get_file_name(self._code)) == os.path.basename(file) else ""

    def done(self, rank: int) -> bool:
        return rank in self.replied and rank in self.idle

    def missed(self, rank: int) -> None:
        super().missed(rank)
        self.idle.add(rank)

    def hear(self, rank: int, client: RankClient) -> None:
        ours = self._message_ids[rank]
        for message in client.published():
            kind = message["msg_type"]
            if kind in _SHOWN:
                self._sink.publish(rank, message)
            elif message["content"].get("execution_state") == "idle":
                self.idle |= {rank} if message["parent_header"].get("msg_id") == ours else set()
        for message in client.replies():
            if message["parent_header"].get("msg_id") == ours and rank not in self.replied:
                self.replied.add(rank)
                if counts := message["metadata"].get("ranks", {}):
                    self.counts[rank] = counts
                if (content := message["content"])["status"] != "ok":
                    name, traceback = content.get("ename", content["status"]), "\n".join(content.get("traceback", []))
                    time_ns = counts.get("time_ns", 0)
                    self.failed.append(Failure.raised(rank, name, content.get("evalue", ""), traceback, time_ns))

    def listen(self) -> None:
        super().listen()
        self._sink.tick()

    def notice(self, text: str) -> None:
        self._sink.notice(text)
