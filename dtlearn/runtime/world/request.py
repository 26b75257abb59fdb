"""Asks ranks behind a notebook to do something other than a cell, and notices at once if one of them cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from .. import pickles
from ..errors import RankError
from ..faults.failure import Failure, is_peer_loss
from ..pickles import notebook_sources
from ..record.log import merge_logs
from ..record.record import Record
from ..words import ranks_text
from .cell import finish
from .rank_client import RankLink
from .task import Running

if TYPE_CHECKING:
    from .world import World


def request(
    world: World,
    content: dict[str, Any],
    body: bytes = b"",
    *,
    what: str,
    timeout: float,
    ranks: list[int] | None = None,
    watched: bool = False,
) -> list[Any]:
    """Send one request to ranks (None: all) and wait for their values.

    Args:
        world: the ranks.
        content, body: see `rank_kernel`.
        what: what is being done; it leads every message.
        timeout: seconds.
        ranks: global ranks to ask.
        watched: learner's code runs in it that may communicate: its calls are logged anew and watched.

    Raises:
        As `cell.run_cell`: a rank that raised or died is named, ranks that wait for it are freed.
    """
    running = RunningRequest(world, content, body, ranks if ranks is not None else list(range(world.size)), watched)
    finish(running, timeout, f"{what}: ")
    if lost := [rank for rank in running.links if rank not in running.values]:
        raise RankError(f"{what}: the answer of {ranks_text(lost)} was lost; ask again")
    return [pickles.unpack(data) if data else None for data in (running.values[rank] for rank in running.links)]


class RunningRequest(Running):
    """A request that was sent to some ranks."""

    def __init__(self, world: World, content: dict[str, Any], body: bytes, ranks: list[int], watched: bool) -> None:
        world.tasks += 1
        if watched:
            world.cells, world.label = world.tasks, world.placement.where
        super().__init__(world, ranks, world.tasks, world.call_logs() if watched else {})
        self.values: dict[int, bytes] = {}
        content = {**content, "task": self.task, "logged": watched}
        self._message_ids = {r: link.send(content, body) for r, link in self.links.items()}

    def hear(self, rank: int, link: RankLink) -> None:
        for message in link.replies():
            if message["parent_header"].get("msg_id") != self._message_ids[rank] or rank in self.replied:
                continue
            self.replied[rank] = message
            told = message["content"]
            if told["status"] == "ok":
                self.values[rank] = bytes((message.get("buffers") or [b""])[0])
            else:
                consequence = is_peer_loss(told["message"])
                text = (told["type"], told["message"], told["traceback"])
                self.failures.append(Failure(rank, "raised", *text, told["time_ns"], consequence))

    def in_step(self) -> bool:
        told = [m.get("content", {}).get("made") for m in self.replied.values()]
        found = self.watch.diagnosis
        if len(told) != len(self.links) or None in told or (found is not None and found.code != "DTL-ASYNC-WAIT"):
            return False
        made = [t for t in told if t is not None]
        return all(t["calls"] == 0 for t in made) or (
            not any(t["others"] for t in made) and len({(t["collectives"], t["sequence"]) for t in made}) == 1
        )


class Requests:
    """What a world exchanges with its ranks besides cells. Every one of these raises as `cell.run_cell` does."""

    def push(self, **names: Any) -> None:
        """Set variables on every rank: `world.push(x=1)`. Values are copied."""
        body = pickles.pack(names, f"the value of {', '.join(names)}")
        request(_world(self), {"do": "push"}, body, what="push", timeout=60)

    def gather(self, expression: str) -> list[Any]:
        """The value of an expression on every rank, by rank: `world.gather("loss.item()")`."""
        return request(
            _world(self), {"do": "gather", "expression": expression}, what=f"gather({expression!r})", timeout=60
        )

    def run(self, fn: Callable[..., Any], *args: Any, timeout: float = 600.0) -> list[Any]:
        """Call `fn(*args)` on every rank; its return values, by rank. What `fn` sets globally stays on the ranks."""
        body = pickles.pack((fn, args), f"the function {getattr(fn, '__name__', fn)!r} or one of its arguments")
        content = {"do": "call", "sources": notebook_sources()}
        return request(_world(self), content, body, what="run", timeout=timeout, watched=True)

    def last(self, ranks: list[int]) -> list[Any]:
        """The value of the last line of the last cell on those ranks."""
        return request(_world(self), {"do": "last"}, what="the value of the last line", timeout=60, ranks=ranks)

    def record(self, ranks: list[int] | None = None) -> Record:
        """What ranks (None: all) communicated in the last cell, or `run`, that each of them took part in."""
        world = _world(self)
        logs = request(world, {"do": "events"}, what="the record", timeout=60, ranks=ranks)
        return merge_logs(world.size, logs, world.label)


def _world(world: Requests) -> World:
    return cast("World", world)
