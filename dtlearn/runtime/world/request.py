"""Asks ranks behind a notebook to do something other than a cell, and notices at once if one of them cannot."""

from typing import Any

from .. import pickles
from ..errors import RankError
from ..faults.failure import Failure
from ..words import ranks_text
from .cell import finish
from .rank_client import RankClient
from .ranks import RankProcesses
from .task import Task


def request(
    ranks: RankProcesses,
    content: dict[str, Any],
    body: bytes = b"",
    *,
    what: str,
    timeout: float,
    asked: list[int] | None = None,
    logged: bool = False,
) -> list[Any]:
    """Send one request to ranks and wait for their values.

    Args:
        content, body: see `rank/kernel.py`.
        what: what is being done; it leads every message.
        asked: global ranks; None: all.
        logged: learner's code runs in it that may communicate: its calls are logged anew and watched.

    Raises as `cell.finish`: a rank that raised or died is named, ranks that wait for it are freed.
    """
    task = Request(ranks, content, body, asked if asked is not None else list(range(ranks.size)), logged)
    finish(task, timeout, f"{what}: ", patient=not logged)
    if lost := [rank for rank in task.clients if rank not in task.values]:
        raise RankError(f"{what}: the answer of {ranks_text(lost)} was lost; ask again")
    return [pickles.unpack(data) if data else None for data in (task.values[rank] for rank in task.clients)]


class Request(Task):
    """A request that was sent to some ranks."""

    def __init__(
        self, ranks: RankProcesses, content: dict[str, Any], body: bytes, asked: list[int], logged: bool
    ) -> None:
        super().__init__(ranks, asked, logged=logged)
        self.values: dict[int, bytes] = {}
        content = {**content, "task": self.number, "logged": logged}
        self._message_ids = {r: client.send(content, body) for r, client in self.clients.items()}

    def hear(self, rank: int, client: RankClient) -> None:
        for message in client.replies():
            if message["parent_header"].get("msg_id") != self._message_ids[rank] or rank in self.replied:
                continue
            self.replied.add(rank)
            answer = message["content"]
            if counts := answer.get("made"):
                self.counts[rank] = counts
            if answer["status"] == "ok":
                self.values[rank] = bytes((message.get("buffers") or [b""])[0])
            else:
                about = (answer[key] for key in ("type", "message", "traceback", "time_ns"))
                self.failed.append(Failure.raised(rank, *about))
