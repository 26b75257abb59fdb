"""The node agent: one small process per machine that has torch loaded and from which ranks are forked.

It runs no code of the learner's, stays on one thread and never touches CUDA: that is what makes forking it safe and
quick (forking the notebook kernel is neither: after one multi-threaded torch operation the child hangs). When the
process that started it goes away, in whatever way, its control socket closes, and it ends every rank and itself.
Where forking is not safe (macOS, more than one thread) each rank is a new interpreter instead.

    head -- agent +- reaper of a run -- ranks -- whatever they start
                 +- reaper of a run -- ...

Whichever of these is killed, a neighbour is left that ends what it leaves: the reaper outlives its agent for a moment,
and the agent sweeps after its reapers.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from .. import wire
from ..machine import namespaces
from ..machine.memory import use_huge_pages
from ..machine.patience import TO_VANISH, Patience
from ..machine.processes import ended_children, kill_below, sweep, wake_at_ends
from ..machine.run_folder import delete_folder, delete_stale_directories
from ..rank import preload
from .forked_ranks import ForkedRanks, may_fork
from .reaper import Reaper

_QUIET = 0.5  # seconds without a request


class AgentServer:
    """Serves one process (the head) over `control` until it closes."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._reapers: dict[int, Reaper] = {}  # by their pid
        self._forked: list[ForkedRanks] = []  # of level 0: their ranks are this process's own children
        self._folders: set[str] = set()  # of runs
        self._ending: set[str] = set()  # folders of runs that nobody wants any more, to be deleted after their ranks
        self._reaper_was_killed = False
        self._starts: int | None = 0  # until our memory is in huge pages

    def serve(self) -> None:
        """Answer requests and report ended ranks until the head is gone. Then nothing of it is left."""
        namespaces.adopt_orphans()
        namespaces.die_with_parent(signal.SIGCONT)  # if somebody has stopped it, it hears of the head's end then
        wake = wake_at_ends()
        try:
            with contextlib.suppress(ConnectionError):  # the head left with an answer unread, or while we worked for it
                self._serve(wake)
        finally:
            self._end_all()

    def _serve(self, wake: int) -> None:
        decoder, descriptors = wire.Decoder(), list[int]()
        both: list[Any] = [self._control, wake]
        while True:
            # 0.2 s, which an agent that starts ranks once would not get back, and for which nobody is to wait.
            ready = select.select(both, [], [], _QUIET if (self._starts or 0) > 1 else None)[0]
            if not ready:
                use_huge_pages()
                self._starts = None
            if wake in ready:
                os.read(wake, 4096)
            self._reap()
            if self._control in ready:
                data, fds, _, _ = socket.recv_fds(self._control, 1 << 20, 250)
                if not data:
                    return
                descriptors += fds
                for request, _ in decoder.feed(data):
                    # Several requests can come at once: only a start brings descriptors, and it says how many.
                    count = 1 + 2 * len(request["ranks"]) if request["do"] == "start" else 0
                    of_request, descriptors = descriptors[:count], descriptors[count:]
                    self._control.sendall(wire.encode({**self._answer(request, of_request), "id": request["id"]}))

    def _answer(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        try:
            if request["do"] == "start":
                return self._start(request, descriptors)
            if request["do"] == "signal":
                return self._signal(request["pids"], request["signal"], request["group"])
            if request["do"] == "end":
                return self._end(request["run_dir"])
            if request["do"] == "hello":
                return {"pid": os.getpid(), "forks": may_fork(), "num_gpus": count_gpus()}
            if request["do"] == "load":
                preload.load(request["module"])
                return {}
            if request["do"] == "load for":
                preload.load_for(request["kind"])
                return {}
            return {"error": f"unknown request {request['do']!r}"}
        except OSError as error:
            for descriptor in descriptors:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            self._reaper_was_killed |= request["do"] == "start"  # by us: it did not say which ranks it has
            self._reap()
            # Ours have their whole story as text; the system's have a number.
            return {"error": f"{type(error).__name__}: {error}" if error.errno else str(error)}

    def _start(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Start ranks. Descriptors: the run's events, then a channel and an output for each rank."""
        self._folders = {f for f in self._folders if os.path.isdir(f)} | {request["common"]["run_dir"]}
        preload.load_for(request["common"]["kind"])
        self._starts = None if self._starts is None else self._starts + 1
        level = (request["common"].get("isolation") or {}).get("level", 1)
        if level == 0 or sys.platform != "linux":
            forked = ForkedRanks(request, descriptors)
            self._forked.append(forked)
            return {"pids": forked.pids}
        reaper = Reaper(request, descriptors)
        self._reapers[reaper.pid] = reaper
        return {"pids": reaper.pids}

    def _signal(self, pids: list[int], number: int, group: bool) -> dict[str, Any]:
        """Signal ranks by pid; those of living reapers and own children only."""
        self._reap()
        alive: set[int] = set()
        for reaper in list(self._reapers.values()):
            if mine := [pid for pid in pids if pid in reaper.pids]:
                alive |= set(reaper.signal(mine, number, group))
        for forked in self._forked:
            if indices := [index for pid, index in forked.living.items() if pid in pids]:
                alive |= {forked.pids[index] for index in forked.signal(indices, number, group)}
        return {"alive": [pid for pid in pids if pid in alive]}

    def _end(self, run_dir: str) -> dict[str, Any]:
        """End all that was started for a run which nobody wants any more, then delete its folder."""
        for reaper in self._reapers.values():
            if reaper.run_dir == run_dir:
                reaper.end()
        for forked in self._forked:
            if forked.run_dir == run_dir:
                forked.kill()
        self._ending.add(run_dir)
        self._reap()
        return {}

    def _reap(self) -> None:
        """Take note of what has ended. What a reaper that was killed left comes to us, the moment it has died, and has
        ended when this returns, or TO_VANISH is over: only then may the folder of its run be deleted."""
        patience, orphans = Patience(TO_VANISH), [0]
        while orphans:
            for pid, status, _ in ended_children():
                self._ended(pid, status)
            own = {*self._reapers, *(pid for forked in self._forked for pid in forked.living)}
            orphans = kill_below(spare=own) if self._reaper_was_killed and not patience.over() else []
            self._reaper_was_killed = bool(orphans)
            time.sleep(0.002 if orphans else 0)
        in_use = {reaper.run_dir for reaper in self._reapers.values()} | {forked.run_dir for forked in self._forked}
        for run_dir in self._ending - in_use:
            delete_folder(Path(run_dir))
            self._ending.discard(run_dir)

    def _ended(self, pid: int, status: int) -> None:
        if reaper := self._reapers.pop(pid, None):
            reaper.end()
            self._reaper_was_killed |= status != 0
        for forked in [f for f in self._forked if pid in f.living]:
            forked.ended(pid, status)
            if not forked.living:
                forked.close()
                self._forked.remove(forked)

    def _end_all(self) -> None:
        """The head is gone: end its ranks, and delete the folders of runs that it could not delete itself."""
        for reaper in self._reapers.values():
            reaper.end()
        patience = Patience(TO_VANISH, self._reapers)
        while self._reapers and not patience.over():
            self._reap()
            time.sleep(0.002)
        for forked in self._forked:
            forked.kill()
        sweep(self._ended)
        for folder in self._folders:
            delete_folder(Path(folder))


def count_gpus() -> int:
    """GPUs that torch sees. Asked in a child, so that the agent itself never touches CUDA."""
    import torch

    if torch.version.cuda is None:
        return 0
    pid = os.fork()
    if pid == 0:
        count = 0
        with contextlib.suppress(Exception):
            count = torch.cuda.device_count()
        os._exit(count)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(control_fd: int) -> None:
    """Load what ranks need, then serve the process at the other end of `control_fd`."""
    delete_stale_directories()
    preload.load_for_all()
    serve(socket.socket(fileno=control_fd))


def serve(control: socket.socket) -> None:
    """Be an agent, in a process that has loaded what ranks need, until the other end of `control` closes."""
    import torch

    from ..recording.recorder import prepare

    prepare()
    # One matmul now: lazily built tables are then shared by all ranks instead of built in each.
    torch.ones(2, 2) @ torch.ones(2, 2)
    AgentServer(control).serve()
    os._exit(0)  # to take torch apart would keep a notebook that ends waiting
