"""Persistent ranks for notebook cells: one IPython kernel per rank, variables that stay between cells."""

import functools
from collections.abc import Callable
from typing import Any

from .. import pickles
from ..agent.client import Agent
from ..device import Placement
from ..link.link import Link
from ..machine.patience import TO_RUN, TO_SAY, TO_SET_UP
from ..output import Sink
from ..pickles import notebook_sources
from ..record.log import merge_logs
from ..record.record import Record
from .cell import Cell, finish
from .look_up import Question, look_up
from .ranks import RankProcesses
from .request import request
from .standing import Snapshot, status_rows, take_snapshot


class World:
    """Ranks that live, with all that they start, until `stop()`, or until nobody holds this or we end.

    Args:
        world_size: number of ranks, 1 to 64.
        device, link: as for `run_ranks`.
        agent: starts them; None: this machine's.

    Raises:
        ValueError: wrong `world_size`, `device` or `link`.
        LaunchError: the ranks could not be started.
    """

    def __init__(
        self, world_size: int, device: str = "auto", link: Link | None = None, agent: Agent | None = None
    ) -> None:
        self.size = world_size
        self.setup_cells: list[str] = []
        # The ranks must not hold this: they end as soon as nobody does.
        self.ranks = RankProcesses(world_size, device, link, agent, functools.partial(_run_setup, self.setup_cells))

    def __repr__(self) -> str:
        return f"{self.size} rank{'s' * (self.size > 1)}, {self.placement if self.running else 'stopped'}"

    @property
    def running(self) -> bool:
        """Whether there are ranks, which `stop()` ends."""
        return bool(self.ranks.processes)

    @property
    def agent(self) -> Agent:
        """What started the ranks."""
        return self.ranks.agent

    @property
    def placement(self) -> Placement:
        """Backend and devices of the ranks, and why."""
        return self.ranks.placement

    @property
    def pids(self) -> list[int]:
        return [p.pid for p in self.ranks.processes]

    @property
    def link(self) -> Link | None:
        """The emulated interconnect; None if there is none. It can be changed between cells: `world.link = Link()`."""
        return self.ranks.link

    @link.setter
    def link(self, link: Link | None) -> None:
        content = self.ranks.use_link(link)
        if living := [client.rank for client in self.ranks.living]:
            request(self.ranks, content, what="world.link", timeout=TO_SAY, asked=living)

    def execute(
        self,
        code: str,
        ranks: list[int] | None = None,
        *,
        timeout: float | None = None,
        patient: bool = False,
        number: int = 0,
        sink: Sink,
    ) -> None:
        """Run a cell on some ranks (None: all). `number`: the notebook's, for tracebacks. Raises as `cell.finish`."""
        if self.agent.seconds_to_notice_a_loss:
            self.ranks.listen()
            if not all(p.alive for p in self.ranks.processes):
                self.ranks.repair()  # a host that was gone may be back; if not, this says what to do
        asked = ranks if ranks is not None else list(range(self.size))
        cell = Cell(self.ranks, code, asked, number, sink)
        finish(cell, timeout, patient=patient)
        if self.placement.backend != "nccl":
            for text in cell.watch.advice.values():
                sink.advise(text)

    # What a world exchanges with its ranks besides cells. Each of these four raises as `cell.finish` does.

    def push(self, **names: Any) -> None:
        """Set variables on every rank: `world.push(x=1)`. Values are copied."""
        body = pickles.pack(names, f"the value of {', '.join(names)}")
        request(self.ranks, {"do": "push"}, body, what="push", timeout=TO_SAY)

    def gather(self, expression: str) -> list[Any]:
        """The value of an expression on every rank, by rank: `world.gather("loss.item()")`."""
        content = {"do": "gather", "expression": expression}
        return request(self.ranks, content, what=f"gather({expression!r})", timeout=TO_SAY)

    def run(self, fn: Callable[..., Any], *args: Any, timeout: float = TO_RUN) -> list[Any]:
        """Call `fn(*args)` on every rank; its return values, by rank. What `fn` sets globally stays on the ranks."""
        body = pickles.pack((fn, args), f"the function {getattr(fn, '__name__', fn)!r} or one of its arguments")
        content = {"do": "call", "sources": notebook_sources()}
        return request(self.ranks, content, body, what="run", timeout=timeout, logged=True)

    def last(self, ranks: list[int]) -> list[Any]:
        """The value of the last line of the last cell on those ranks."""
        return request(self.ranks, {"do": "last"}, what="the value of the last line", timeout=TO_SAY, asked=ranks)

    def record(self, ranks: list[int] | None = None) -> Record:
        """What ranks (None: all) communicated in the last cell, or `run`, that each of them took part in."""
        logs = self.ranks.read_logs(ranks if ranks is not None else list(range(self.size)))
        return merge_logs(self.size, logs, self.ranks.label)

    def log_faults(self) -> dict[int, str]:
        """{rank: why its log of the latest cell, and so the record of that, is incomplete}."""
        return self.ranks.log_faults()

    def diagnose(self) -> Snapshot:
        """How every rank stands, from three sources. It may be asked from a thread while a cell runs."""
        return take_snapshot(self.ranks)

    def look_up(self, question: Question, content: dict[str, Any]) -> dict[str, Any] | None:
        """What rank 0 answers to a front end's question about names; None if it is busy. See `look_up.look_up`."""
        return look_up(self.ranks, question, content)

    def status(self) -> list[dict[str, Any]]:
        """One row per rank: rank, pid, device, state; see `standing.status_rows`."""
        return status_rows(self.ranks)

    def restart(self) -> None:
        """End all ranks and start new ones; variables are lost, setup cells run again."""
        self.ranks.restart()

    def stop(self) -> None:
        """End all ranks, and send the nodes of a lab home."""
        self.ranks.stop()


def _run_setup(setup_cells: list[str], ranks: RankProcesses, asked: list[int]) -> None:
    """Prepare ranks that are new as the others were prepared."""
    for code in setup_cells:
        finish(Cell(ranks, code, asked, 0, Sink()), TO_SET_UP, patient=True)
