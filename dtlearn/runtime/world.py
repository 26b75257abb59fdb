"""Persistent ranks for notebook cells: one IPython kernel per rank, variables that stay between cells."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import transfer, wire
from .agent_client import AgentClient, get_agent
from .cell import CellOutcome, Sink, run_cell
from .collect import Collector
from .device import Placement, check_world_size, place
from .errors import DtlearnError, Failure, LaunchError, RankError
from .kernel_client import RankLink, ask_all, values
from .rank_run import call_log_file
from .record import Event
from .run import new_run_directory, start_ranks

_START_TIMEOUT = 60.0
# A collective that waits this long gives up by itself; the time limit of a cell and the interrupt come long before.
_GROUP_TIMEOUT = 1800.0


@dataclass
class RankProcess:
    """One rank of a world: its process, its line, and whoever hears of its death."""

    collector: Collector
    index: int  # in the collector
    link: RankLink

    @property
    def pid(self) -> int:
        return self.collector.ranks[self.index].pid

    @property
    def alive(self) -> bool:
        return self.collector.ranks[self.index].status is None

    @property
    def death(self) -> Failure | None:
        """How it ended; None while it lives."""
        return None if self.alive else self.collector.ranks[self.index].failure

    def close(self) -> None:
        """Give up what this process holds of a rank that has ended."""
        self.link.close()
        self.collector.leave(self.index)


class World:
    """`world_size` ranks that live until `stop()` or until this process ends, however it ends.

    Args:
        world_size: number of ranks, 1 to 64.
        device: as for `run_ranks`.

    Raises:
        ValueError: wrong `world_size` or `device`.
        LaunchError: the ranks could not be started.
    """

    def __init__(self, world_size: int, device: str = "auto") -> None:
        self.size = check_world_size(world_size)
        self._agent: AgentClient = get_agent()
        self.placement: Placement = place(self.size, self._agent.hello()["num_gpus"], device)
        self.setup_cells: list[str] = []
        self.processes: list[RankProcess] = []
        self.cells = 0  # cells run so far
        self._start()

    def __repr__(self) -> str:
        state = "stopped" if not self.processes else str(self.placement)
        return f"{self.size} rank{'s' * (self.size > 1)}, {state}"

    @property
    def links(self) -> list[RankLink]:
        """Lines to all ranks. Raises DtlearnError if the world is stopped."""
        if not self.processes:
            raise DtlearnError("these ranks were stopped; start new ones with `%world restart` or `dtlearn.world(n)`")
        return [p.link for p in self.processes]

    @property
    def pids(self) -> list[int]:
        return [p.pid for p in self.processes]

    def call_logs(self) -> dict[int, Path]:
        """Where each rank writes the calls of the latest cell."""
        return {r: call_log_file(self._run_dir, r, self.cells) for r in range(self.size)}

    def execute(
        self, code: str, ranks: list[int] | None = None, *, timeout: float | None = None, number: int = 0, sink: Sink
    ) -> CellOutcome:
        """Run a cell on some ranks (None: all). See `cell.run_cell`."""
        return run_cell(self, code, ranks if ranks is not None else list(range(self.size)), timeout, number, sink)

    def push(self, **names: Any) -> None:
        """Set variables on every rank: `world.push(x=1)`. Values are copied."""
        body = transfer.pack(names, f"the value of {', '.join(names)}")
        values(self.links, ask_all(self.links, {"do": "push"}, body, timeout=60), "push")

    def gather(self, expression: str) -> list[Any]:
        """The value of an expression on every rank, by rank: `world.gather("loss.item()")`."""
        replies = ask_all(self.links, {"do": "gather", "expression": expression}, timeout=60)
        return values(self.links, replies, f"gather({expression!r})")

    def run(self, fn: Callable[..., Any], *args: Any, timeout: float = 600.0) -> list[Any]:
        """Call `fn(*args)` on every rank; its return values, by rank. What `fn` sets globally stays on the ranks."""
        body = transfer.pack((fn, args), f"the function {getattr(fn, '__name__', fn)!r} or one of its arguments")
        return values(self.links, ask_all(self.links, {"do": "call"}, body, timeout=timeout), "run")

    def last(self, ranks: list[int]) -> list[Any]:
        """The value of the last line of the last cell on those ranks."""
        links = [self.links[r] for r in ranks]
        return values(links, ask_all(links, {"do": "last"}, timeout=60), "the value of the last line")

    def events(self) -> list[list[Event]]:
        """What each rank communicated in the last cell that it ran."""
        return values(self.links, ask_all(self.links, {"do": "events"}, timeout=60), "the record")

    def status(self) -> list[dict[str, Any]]:
        """One row per rank: rank, pid, device, state ("idle", "stopped", or the call that it is in)."""
        if not self.processes:
            return []
        self.listen()
        living = [p.link for p in self.processes if p.alive]
        told = dict(
            zip((link.rank for link in living), ask_all(living, {"do": "state"}, timeout=2, side=True), strict=True)
        )
        rows = []
        for rank, process in enumerate(self.processes):
            reply = told.get(rank)
            if not process.alive:
                state = "dead"
            elif reply is None:
                state = "does not answer"
            else:
                inside, stack = reply[0]["inside"], reply[0]["stack"]
                state = inside or (f"running, {stack[-1]}" if stack else "idle")
            rows.append({"rank": rank, "pid": process.pid, "device": self.placement.devices[rank], "state": state})
        return rows

    def restart(self) -> None:
        """End all ranks and start new ones; variables are lost, setup cells run again."""
        self.stop()
        self._start()
        self._replay_setup(list(range(self.size)))

    def stop(self) -> None:
        """End all ranks."""
        if self.processes:
            with contextlib.suppress(LaunchError):  # the agent is gone, and its ranks with it
                self._agent.signal(self.pids, signal.SIGKILL, group=True)
            for collector in {p.collector for p in self.processes}:
                collector.wait_for_deaths(time.monotonic() + 5)
            for process in self.processes:
                process.close()
        self.processes = []
        self._remove_run_dir()

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

    def repair(self) -> list[int]:
        """Replace dead ranks and give all ranks new process groups. Returns the ranks that were replaced."""
        self.listen()
        dead = [r for r, p in enumerate(self.processes) if not p.alive]
        self.generation += 1
        living = [p.link for p in self.processes if p.alive]
        # All at once: the groups of the living are complete only when the new ranks join.
        sent = [(link, link.send({"do": "remake", "generation": self.generation})) for link in living]
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
        self._remove_run_dir = weakref.finalize(self, shutil.rmtree, self._run_dir, ignore_errors=True)  # at exit too
        self.generation = 0
        self._agent = get_agent()
        try:
            self.processes = self._launch(list(range(self.size)))
        except BaseException:
            self._remove_run_dir()
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
        collector.tell_all(wire.encode({"generation": self.generation}))
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
            links.append(RankLink(rank, state.ready))
        for link in links:
            link.wait_until_heard(deadline)
        return links

    def _replay_setup(self, ranks: list[int]) -> None:
        for code in self.setup_cells if ranks else []:
            self.execute(code, ranks, timeout=30, sink=Sink())
