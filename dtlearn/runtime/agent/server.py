"""The node agent: one small process per machine that has torch loaded and from which ranks are forked.

It runs no code of the learner's, stays on one thread and never touches CUDA: that is what makes forking it safe and
quick (forking the notebook kernel is neither: after one multi-threaded torch operation the child hangs). When the
process that started it goes away, in whatever way, its control socket closes, and it ends every rank and itself.
Where forking is not safe (macOS, more than one thread) each rank is a new interpreter instead.

    head -- agent +- leader of a run -- ranks -- whatever they start
                 +- leader of a run -- ...

Whichever of these is killed, a neighbour is left that ends what it leaves: the leader outlives its agent for a moment,
and the agent sweeps after its leaders.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import sys
import time
from typing import Any

from .. import wire
from ..machine import namespaces
from ..machine.processes import SIGKILL_PATIENCE, children, descendants, sweep
from ..machine.run_folder import delete_stale_directories
from .forked_ranks import Family, may_fork
from .reaper import Leader


class Agent:
    """Serves one process (the head) over `control` until it closes."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._leaders: dict[int, Leader] = {}  # by their pid
        self._families: list[Family] = []  # of level 0: their ranks are this process's own children
        self._folders: set[str] = set()  # of runs
        self._ending: set[str] = set()  # folders of runs that nobody wants any more, to be deleted after their ranks
        self._sweep_until = 0.0

    def serve(self) -> None:
        """Answer requests and report ended ranks until the head is gone. Then nothing of it is left."""
        namespaces.adopt_orphans()
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        try:
            with contextlib.suppress(ConnectionError):  # the head left with an answer unread, or while we worked for it
                self._serve(wake_read)
        finally:
            self._end_all()

    def _serve(self, wake: int) -> None:
        decoder, descriptors = wire.Decoder(), list[int]()
        while True:
            both: list[Any] = [self._control, wake]
            sweeping = time.monotonic() < self._sweep_until
            ready = select.select(both, [], [], 0.05 if sweeping else None)[0]
            if wake in ready:
                os.read(wake, 4096)
            self._reap()
            if sweeping:
                self._sweep_orphans()
            if self._control in ready:
                data, fds, _, _ = socket.recv_fds(self._control, 1 << 20, 250)
                if not data:
                    return
                descriptors += fds
                for request, _ in decoder.feed(data):
                    answer = {**self._answer(request, descriptors), "id": request["id"]}
                    descriptors = []
                    self._control.sendall(wire.encode(answer))

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
                importlib.import_module(request["module"])
                gc.freeze()
                return {}
            return {"error": f"unknown request {request['do']!r}"}
        except OSError as error:
            for descriptor in descriptors:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            # Ours have their whole story as text; the system's have a number.
            return {"error": f"{type(error).__name__}: {error}" if error.errno else str(error)}

    def _start(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Start ranks. Descriptors: the run's events, then a channel and an output for each rank."""
        self._folders = {f for f in self._folders if os.path.isdir(f)} | {request["common"]["run_dir"]}
        level = (request["common"].get("isolation") or {}).get("level", 1)
        if level == 0 or sys.platform != "linux":
            family = Family(request, descriptors)
            self._families.append(family)
            return {"pids": family.pids}
        leader = Leader(request, descriptors)
        self._leaders[leader.pid] = leader
        return {"pids": leader.pids}

    def _signal(self, pids: list[int], number: int, group: bool) -> dict[str, Any]:
        """Signal ranks by pid; those of living leaders and own children only."""
        self._reap()
        alive: set[int] = set()
        for leader in list(self._leaders.values()):
            if mine := [pid for pid in pids if pid in leader.pids]:
                alive |= set(leader.signal(mine, number, group))
        for family in self._families:
            if indices := [index for pid, index in family.living.items() if pid in pids]:
                alive |= {family.pids[index] for index in family.signal(indices, number, group)}
        return {"alive": [pid for pid in pids if pid in alive]}

    def _end(self, run_dir: str) -> dict[str, Any]:
        """End all that was started for a run which nobody wants any more, then delete its folder."""
        for leader in self._leaders.values():
            if leader.run_dir == run_dir:
                leader.end()
        for family in self._families:
            if family.run_dir == run_dir:
                family.kill()
        self._ending.add(run_dir)
        self._reap()
        return {}

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self._ended(*found)
        in_use = {leader.run_dir for leader in self._leaders.values()} | {family.run_dir for family in self._families}
        for run_dir in self._ending - in_use:
            shutil.rmtree(run_dir, ignore_errors=True)
            self._ending.discard(run_dir)

    def _ended(self, pid: int, status: int) -> None:
        if leader := self._leaders.pop(pid, None):
            leader.end()
            # One that was killed could not clean up: what its ranks started comes to us, the moment they have died.
            if status != 0:
                self._sweep_until = time.monotonic() + SIGKILL_PATIENCE
                self._sweep_orphans()
        for family in [f for f in self._families if pid in f.living]:
            family.ended(pid, status)
            if not family.living:
                family.close()
                self._families.remove(family)

    def _sweep_orphans(self) -> None:
        spare = {*self._leaders, *(pid for family in self._families for pid in family.living)}
        for pid in children(os.getpid()):
            for one in [] if pid in spare else [pid, *descendants(pid)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)

    def _end_all(self) -> None:
        """The head is gone: end its ranks, and delete the folders of runs that it could not delete itself."""
        for leader in self._leaders.values():
            leader.end()
        deadline = time.monotonic() + SIGKILL_PATIENCE
        while self._leaders and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.002)
        for family in self._families:
            family.kill()
        sweep(self._ended)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


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
    gc.disable()  # what is loaded here stays: to look for garbage in it, again and again, takes a quarter of the time
    import torch
    import torch._dynamo  # a process's first optimizer loads it: a second, here once instead of on every rank
    import torch.distributed

    with contextlib.suppress(ImportError):  # cells on ranks need these; run_ranks doesn't
        import cloudpickle  # noqa: F401
        import matplotlib.pyplot  # noqa: F401

        from ..rank import kernel  # noqa: F401
    from ..recording import dispatch

    dispatch.install()
    # One matmul now: lazily built tables are then shared by all ranks instead of built in each.
    torch.ones(2, 2) @ torch.ones(2, 2)
    gc.freeze()  # objects that never move again stay in pages shared with the ranks
    gc.enable()
    Agent(socket.socket(fileno=control_fd)).serve()
