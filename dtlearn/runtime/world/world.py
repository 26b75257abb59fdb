"""Persistent ranks for notebook cells: one IPython kernel per rank, variables that stay between cells."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
import weakref
from pathlib import Path
from typing import Any

from .. import wire
from ..agent.client import AgentClient, get_agent
from ..agent.collector import Collector
from ..agent.start import start_ranks
from ..device import Placement, check_world_size, place
from ..errors import DtlearnError, LaunchError, RankError
from ..lab.config import Lab
from ..lab.head.agent import LabAgent, connect_lab
from ..link.link import Link, connect
from ..machine.run_folder import new_run_directory
from ..output import Sink
from ..rank.spec import STACK_SIGNAL, call_log_file
from .cell import CellOutcome, run_cell
from .rank_client import RankLink, ask_all, values
from .rank_handle import RankProcess
from .request import Requests
from .standing import Snapshot, take_snapshot
from .world_status import rows

_START_TIMEOUT = 60.0
# A collective that waits this long gives up by itself; the time limit of a cell and the interrupt come long before.
_GROUP_TIMEOUT = 1800.0


class World(Requests):
    """Ranks that live, with all that they start, until `stop()`, or until nobody holds this or we end.

    Args:
        world_size: number of ranks, 1 to 64, on this machine; or a lab: ranks on several (see `lab.config`); or a
            lab's agent, whose nodes may be there already.
        device, link: as for `run_ranks`.

    Raises:
        ValueError: wrong `world_size`, `device` or `link`.
        LaunchError: the ranks could not be started.
    """

    def __init__(self, world_size: int | Lab | LabAgent, device: str = "auto", link: Link | None = None) -> None:
        self.lab: LabAgent | None = None
        if isinstance(world_size, Lab | LabAgent):
            self.lab = world_size if isinstance(world_size, LabAgent) else LabAgent(world_size)
            self.size = self.lab.lab.size
            self.placement: Placement = connect_lab(self.lab.lab, device, link)
        else:
            self.size = check_world_size(world_size)
            self.placement = connect(place(self.size, get_agent().hello()["num_gpus"], device), link)
        self.label = self.placement.where
        self._link, self._links_used = link, 0
        self.setup_cells: list[str] = []
        self.processes: list[RankProcess] = []
        self.tasks = 0  # cells and requests so far
        self.cells = 0  # the number of the latest of them whose calls are logged
        self._start()

    def __repr__(self) -> str:
        return f"{self.size} rank{'s' * (self.size > 1)}, {self.placement if self.processes else 'stopped'}"

    @property
    def links(self) -> list[RankLink]:
        """Lines to all ranks. Raises DtlearnError if the world is stopped."""
        if not self.processes:
            raise DtlearnError("these ranks were stopped; start new ones with `%world restart` or `dtlearn.world(n)`")
        return [p.link for p in self.processes]

    @property
    def pids(self) -> list[int]:
        return [p.pid for p in self.processes]

    @property
    def link(self) -> Link | None:
        """The emulated interconnect; None if there is none. It can be changed between cells: `world.link = Link()`."""
        return self._link

    @link.setter
    def link(self, link: Link | None) -> None:
        self.placement = connect_lab(self.lab.lab, "auto", link) if self.lab else connect(self.placement, link)
        self._link, self._links_used = link, self._links_used + 1
        living = [p.link for p in self.processes if p.alive]  # a rank that replaces a dead one hears of it at its start
        values(living, ask_all(living, {"do": "link", **self._groups()}, timeout=60), "world.link")

    def _groups(self) -> dict[str, Any]:
        """What a rank is told of its groups: which generation, and what they are connected by."""
        link = self._link and self._link.to_plain()
        return {"generation": self.generation, "link": link, "era": f"{self.generation}.{self._links_used}"}

    def call_logs(self) -> dict[int, Path]:
        """Where each rank writes the calls of the latest cell."""
        return {r: call_log_file(self._run_dir, r, self.cells) for r in range(self.size)}

    def execute(
        self, code: str, ranks: list[int] | None = None, *, timeout: float | None = None, number: int = 0, sink: Sink
    ) -> CellOutcome:
        """Run a cell on some ranks (None: all). See `cell.run_cell`."""
        if self.lab is not None:
            self.listen()
            if not all(p.alive for p in self.processes):
                self.repair()  # a host that was gone may be back; if not, this says what to do
        self.label = self.placement.where  # what was measured on a link is told of it, whatever link comes next
        return run_cell(self, code, ranks if ranks is not None else list(range(self.size)), timeout, number, sink)

    def diagnose(self) -> Snapshot:
        """How every rank stands, from three sources. It may be asked from a thread while a cell runs."""
        return take_snapshot(self)

    def status(self) -> list[dict[str, Any]]:
        """One row per rank: rank, pid, device, state; see `world_status.rows`."""
        return rows(self)

    def restart(self) -> None:
        """End all ranks and start new ones; variables are lost, setup cells run again."""
        self._end_ranks()
        self._start()
        self._replay_setup(list(range(self.size)))

    def stop(self) -> None:
        """End all ranks, and send the nodes of a lab home."""
        self._end_ranks()
        if self.lab is not None:
            self.lab.close()

    def _end_ranks(self) -> None:
        if self.processes:
            with contextlib.suppress(LaunchError):  # the agent is gone, and its ranks with it
                self._agent.signal(self.pids, signal.SIGKILL, group=True)
            for collector in {p.collector for p in self.processes}:
                collector.wait_for_deaths(time.monotonic() + 5)
            for process in self.processes:
                process.close()
        self.processes = []
        if self._abandon.detach():
            shutil.rmtree(self._run_dir, ignore_errors=True)

    def listen(self) -> None:
        """Hear of deaths."""
        for collector in {p.collector for p in self.processes}:
            collector.listen_until(time.monotonic() + 0.001)

    def kill(self, ranks: list[int]) -> None:
        """End some ranks; `repair` replaces them."""
        self._agent.signal([self.processes[r].pid for r in ranks], signal.SIGKILL, group=True)
        deadline = time.monotonic() + 5
        while any(self.processes[r].alive for r in ranks) and time.monotonic() < deadline:
            self.listen()

    def interrupt(self, ranks: list[int]) -> None:
        """Send those ranks what Ctrl-C sends."""
        self._agent.signal([self.processes[r].pid for r in ranks], signal.SIGINT)

    def dump_stacks(self, ranks: list[int]) -> None:
        """Ask those ranks to write their stacks to their files; also ranks whose interpreter does not answer do."""
        self._agent.signal([self.processes[r].pid for r in ranks], STACK_SIGNAL)

    def repair(self) -> list[int]:
        """Replace dead ranks and give all ranks new process groups. Returns the ranks that were replaced."""
        self.listen()
        dead = [r for r, p in enumerate(self.processes) if not p.alive]
        if self.lab is not None:
            self.lab.check(dead)
        self.generation += 1
        living = [p.link for p in self.processes if p.alive]
        # All at once: the groups of the living are complete only when the new ranks join.
        sent = [(link, link.send({"do": "remake", **self._groups()})) for link in living]
        if dead:
            for rank, process in zip(dead, self._launch(dead), strict=True):
                self.processes[rank].close()
                self.processes[rank] = process
        deadline = time.monotonic() + 20
        for link, msg_id in sent:
            reply = link.receive(msg_id, deadline)
            if reply is None or reply[0]["status"] != "ok":
                raise RankError(f"rank {link.rank} could not join new process groups: {reply and reply[0]['message']}")
        self._replay_setup(dead)
        return dead

    def _start(self) -> None:
        self._run_dir = new_run_directory()
        self.generation = 0
        self._agent: AgentClient | LabAgent = self.lab or get_agent()
        # At exit too, and when nobody holds this world any more.
        self._abandon = weakref.finalize(self, self._agent.abandon, str(self._run_dir))
        try:
            if self.lab is not None:
                self.lab.gather(self._run_dir)
            self.processes = self._launch(list(range(self.size)))
        except BaseException:
            self.stop()
            raise

    def _launch(self, ranks: list[int]) -> list[RankProcess]:
        collector = start_ranks(self._agent, "kernel", self.placement, self._run_dir, _GROUP_TIMEOUT, ranks)
        try:
            links = self._connect(collector, ranks)
        except BaseException:
            with contextlib.suppress(LaunchError):
                self._agent.signal([s.pid for s in collector.ranks], signal.SIGKILL, group=True)
            collector.close()
            raise
        return [RankProcess(collector, i, link) for i, link in enumerate(links)]

    def _connect(self, collector: Collector, ranks: list[int]) -> list[RankLink]:
        collector.tell_all(wire.encode(self._groups()))
        deadline = time.monotonic() + _START_TIMEOUT
        collector.listen_until(deadline, lambda: all(s.ready or s.failure for s in collector.ranks))
        if failures := collector.failures():
            first = failures[0]
            said = collector.ranks[first.rank].output.text().strip() or first.traceback
            who = ranks[first.rank]  # the collector counts the ranks that it listens to
            raise LaunchError(f"rank {who} did not start: {first.type} {first.message}\n{said[-2000:]}")
        links = []
        for rank, state in zip(ranks, collector.ranks, strict=True):
            if state.ready is None:
                raise LaunchError(f"rank {rank} did not start within {_START_TIMEOUT:g} s")
            connection = self.lab.reach(state.pid, state.ready, self._run_dir) if self.lab else state.ready
            links.append(RankLink(rank, connection))
        for link in links:
            link.wait_until_heard(deadline)
        return links

    def _replay_setup(self, ranks: list[int]) -> None:
        for code in self.setup_cells if ranks else []:
            self.execute(code, ranks, timeout=30, sink=Sink())
