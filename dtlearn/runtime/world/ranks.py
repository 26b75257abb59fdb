"""The hold on the processes of persistent ranks: they are started, reached, signalled and replaced here."""

import contextlib
import signal
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import wire
from ..agent.client import Agent, get_agent
from ..agent.collector import Collector, RankState
from ..agent.start import start_ranks
from ..errors import DtlearnError, LaunchError, RankError
from ..faults.failure import Failure
from ..link.link import Link
from ..machine.limits import Limits
from ..machine.patience import GROUP_TIMEOUT, TO_MEET, TO_VANISH, Patience
from ..machine.run_folder import delete_folder, new_run_directory
from ..rank.spec import call_log_file
from ..record.log import RankLog, read_rank_log, spans_file
from .rank_client import RankClient, connect


@dataclass
class RankProcess:
    """One rank: its process, the line to it, and whoever hears of its death."""

    collector: Collector
    index: int  # in the collector
    client: RankClient
    logged: int = 0  # number of the latest cell or request whose calls it logged

    @property
    def state(self) -> RankState:
        """What is known of its process."""
        return self.collector.ranks[self.index]

    @property
    def pid(self) -> int:
        return self.state.pid

    @property
    def alive(self) -> bool:
        return self.state.status is None

    @property
    def death(self) -> Failure | None:
        """How it ended; None while it lives."""
        return None if self.alive else self.state.failure

    def close(self) -> None:
        """Give up what this process holds of a rank that has ended."""
        self.client.close()
        self.collector.leave(self.index)


class RankProcesses:
    """Ranks that live, with all that they start, until `stop()`, or until nobody holds this or we end.

    Args:
        size, device, link, agent: as for `World`, which raises what this raises.
        prepare: called with this and the ranks that got a new process in the place of an old one.
    """

    def __init__(
        self,
        size: int,
        device: str,
        link: Link | None,
        agent: Agent | None,
        prepare: Callable[["RankProcesses", list[int]], None],
    ) -> None:
        self._asked_agent, self._prepare = agent, prepare
        self.agent: Agent = agent or get_agent()
        self.placement = self.agent.place(size, device, link)
        self.size, self._device = size, device
        self.link, self._links_used = link, 0
        self.processes: list[RankProcess] = []
        self.label = self.placement.where  # of the latest cell's record: what was measured on a link is told of it
        self.tasks = 0  # cells and requests so far
        self._logged = 0  # the number of the latest of them whose calls are logged
        self._start()

    @property
    def clients(self) -> list[RankClient]:
        """Lines to all ranks. Raises DtlearnError if they were stopped."""
        if not self.processes:
            raise DtlearnError("these ranks were stopped; start new ones with `%world restart` or `dtlearn.world(n)`")
        return [p.client for p in self.processes]

    @property
    def living(self) -> list[RankClient]:
        """Lines to the ranks that live, as far as we have heard."""
        return [p.client for p in self.processes if p.alive]

    @property
    def limits(self) -> Limits:
        """What each rank may use."""
        return self.processes[0].collector.limits

    def begin_task(self, asked: list[int], logged: bool) -> int:
        """The number of a new cell or request for some ranks. `logged`: it begins new logs of their calls."""
        self.tasks += 1
        if logged:
            self._logged, self.label = self.tasks, self.placement.where
            for rank in asked:
                old = call_log_file(self.run_dir, rank, self.processes[rank].logged)
                _delete([old, spans_file(old)])  # the rank does so too, but one that has died did not
                self.processes[rank].logged, self.processes[rank].state.fault = self.tasks, ""
        return self.tasks

    def call_logs(self) -> dict[int, Path]:
        """Where each rank writes the calls of the latest cell."""
        return {r: call_log_file(self.run_dir, r, self._logged) for r in range(self.size)}

    def read_logs(self, asked: list[int]) -> list[RankLog]:
        """What ranks logged in the latest cell that each took part in. Raises DtlearnError if they were stopped."""
        assert self.clients
        self.listen()
        processes = [(rank, self.processes[rank]) for rank in asked]
        return [read_rank_log(call_log_file(self.run_dir, r, p.logged), r, p.state.fault) for r, p in processes]

    def log_faults(self) -> dict[int, str]:
        """{rank: why its log of the latest cell is incomplete}."""
        self.listen()
        return {r: p.state.fault for r, p in enumerate(self.processes) if p.logged == self._logged and p.state.fault}

    def listen(self, seconds: float = 0.0) -> None:
        """Hear of deaths, and of logs that cannot be written, for at most that long if there is nothing to hear."""
        for collector in self.collectors():
            collector.listen(seconds)

    def collectors(self) -> set[Collector]:
        """The collectors that hear of these ranks' deaths."""
        return {p.collector for p in self.processes}

    def patience(self, seconds: float, ranks: Sequence[int] | None = None) -> Patience:
        """A patience of so many seconds for some ranks (None: all), more where they cannot get a processor."""
        pids = [p.pid for r, p in enumerate(self.processes) if ranks is None or r in ranks]
        return self.agent.patience(seconds, pids)

    def interrupt(self, ranks: list[int]) -> None:
        """Send those ranks what Ctrl-C sends, and let one that was stopped go on, to hear it."""
        for number in (signal.SIGINT, signal.SIGCONT):
            self.agent.signal([self.processes[r].pid for r in ranks], number)

    def kill(self, ranks: list[int]) -> None:
        """End some ranks; `repair` replaces them."""
        self.agent.signal([self.processes[r].pid for r in ranks], signal.SIGKILL, group=True)
        patience = self.patience(TO_VANISH, ranks)
        while any(self.processes[r].alive for r in ranks) and not patience.over():
            self.listen(0.01)

    def use_link(self, link: Link | None) -> dict[str, Any]:
        """Emulate another interconnect between the ranks; None: none. Returns what the living have to be told of it."""
        self.placement = self.agent.place(self.size, self._device, link)
        self.link, self._links_used = link, self._links_used + 1
        return {"do": "link", **self._groups()}  # a rank that replaces a dead one hears of it at its start

    def repair(self) -> list[int]:
        """Replace dead ranks and give all ranks new process groups. Returns the ranks that were replaced."""
        self.listen()
        dead = [r for r, p in enumerate(self.processes) if not p.alive]
        self.agent.check(dead)
        self.generation += 1
        # All at once: the groups of the living are complete only when the new ranks join.
        sent = [(client, client.send({"do": "remake", **self._groups()})) for client in self.living]
        if dead:
            for rank, process in zip(dead, self._launch(dead), strict=True):
                process.logged = self.processes[rank].logged  # until it has a log of its own, that of the dead is there
                self.processes[rank].close()
                _delete(self.run_dir.glob(f"k*{rank}.{self.processes[rank].pid}[-.]*"))  # its sockets and their list
                self.processes[rank] = process
        patience = self.patience(TO_MEET)
        for client, msg_id in sent:
            reply = client.receive(msg_id, patience)
            if reply is None or reply[0]["status"] != "ok":
                why = reply and reply[0]["message"]
                raise RankError(f"rank {client.rank} could not join new process groups: {why}")
        # Ranks let go of groups that are older when they make new ones.
        _delete(path for path in self.run_dir.glob("store-*") if int(path.name[6:]) < self.generation - 1)
        if dead:
            self._prepare(self, dead)
        return dead

    def restart(self) -> None:
        """End all ranks and start new ones."""
        self._end()
        self._start()
        self._prepare(self, list(range(self.size)))

    def stop(self) -> None:
        """End all ranks, and send the nodes of a lab home."""
        self._end()
        self.agent.close()

    def _groups(self) -> dict[str, Any]:
        """What a rank is told of its groups: which generation, and what they are connected by."""
        link = self.link and asdict(self.link)
        return {"generation": self.generation, "link": link, "era": f"{self.generation}.{self._links_used}"}

    def _start(self) -> None:
        self.run_dir = new_run_directory()
        self.generation = 0
        self.agent = self._asked_agent or get_agent()  # this machine's may have ended since
        # At exit too, and when nobody holds these ranks any more.
        self._abandon = weakref.finalize(self, self.agent.abandon, str(self.run_dir))
        try:
            self.agent.gather(self.run_dir)
            self.processes = self._launch(list(range(self.size)))
        except BaseException:
            self.stop()
            raise

    def _end(self) -> None:
        if self.processes:
            with contextlib.suppress(LaunchError):  # the agent is gone, and its ranks with it
                self.agent.signal([p.pid for p in self.processes], signal.SIGKILL, group=True)
            for collector in self.collectors():
                collector.wait_for_deaths(TO_VANISH)
            for process in self.processes:
                process.close()
        self.processes = []
        if self._abandon.detach():
            delete_folder(self.run_dir)

    def _launch(self, ranks: list[int]) -> list[RankProcess]:
        collector = start_ranks(self.agent, "kernel", self.placement, self.run_dir, GROUP_TIMEOUT, ranks)
        try:
            collector.tell_all(wire.encode(self._groups()))
            clients = connect(self.agent, collector, ranks, self.run_dir)
        except BaseException:
            with contextlib.suppress(LaunchError):
                self.agent.signal([s.pid for s in collector.ranks], signal.SIGKILL, group=True)
            collector.wait_for_deaths(TO_VANISH)  # they write into the folder until then
            collector.close()
            raise
        return [RankProcess(collector, i, client) for i, client in enumerate(clients)]


def _delete(files: Iterable[Path]) -> None:
    for path in files:
        with contextlib.suppress(OSError):
            path.unlink()
