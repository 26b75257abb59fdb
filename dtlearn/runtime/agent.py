"""The node agent: one small process per machine that has torch loaded and forks the ranks.

It runs no code of the learner's, stays on one thread and never touches CUDA: that is what makes forking it safe and
quick (forking the notebook kernel is neither: after one multi-threaded torch operation the child hangs). When the
process that started it goes away, in whatever way, its control socket closes, and it ends every rank and itself.
Where forking is not safe (macOS, more than one thread) each rank is a new interpreter instead.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from . import wire
from .rank_process import RankSpec, become_rank

_EXEC_RANK = """
import json, socket, sys
spec, channel, output, agent, path = json.loads(sys.argv[1])
sys.path[:] = path
import torch
from dtlearn.runtime.rank_process import RankSpec, become_rank
become_rank(RankSpec(**spec), socket.socket(fileno=channel), output, agent)
"""


class Agent:
    """Serves one process (the head) over `control` until it closes."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, tuple[int, int]] = {}  # pid -> (index in its run, its run's events)
        self._folders: set[str] = set()  # of runs
        self._open_events: dict[int, int] = {}  # file descriptor of a run's events -> ranks that still live

    def serve(self) -> None:
        """Answer requests and report ended ranks until the head is gone."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._wake = (wake_read, wake_write)
        decoder, descriptors = wire.Decoder(), list[int]()
        while True:
            both: list[Any] = [self._control, wake_read]
            ready = select.select(both, [], [])[0]
            if wake_read in ready:
                os.read(wake_read, 4096)
                self._reap()
            if self._control in ready:
                data, fds, _, _ = socket.recv_fds(self._control, 1 << 20, 250)
                if not data:
                    break
                descriptors += fds
                for request, _ in decoder.feed(data):
                    answer = {**self._answer(request, descriptors), "id": request["id"]}
                    descriptors = []
                    try:
                        self._control.sendall(wire.encode(answer))
                    except OSError:  # the head left while we worked for it
                        self._end_all()
                        return
        self._end_all()

    def _answer(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        try:
            if request["do"] == "start":
                return self._start(request, descriptors)
            if request["do"] == "signal":
                return self._signal(request["pids"], request["signal"], request["group"])
            if request["do"] == "hello":
                return {"pid": os.getpid(), "forks": self._may_fork(), "num_gpus": count_gpus()}
            return {"error": f"unknown request {request['do']!r}"}
        except OSError as error:
            for descriptor in descriptors:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            return {"error": f"{type(error).__name__}: {error}"}

    def _start(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Start ranks. Descriptors: the run's events, then a channel and an output for each rank."""
        events, rest = descriptors[0], descriptors[1:]
        self._folders = {f for f in self._folders if os.path.isdir(f)} | {request["common"]["run_dir"]}
        pairs = list(zip(rest[0::2], rest[1::2], strict=True))
        pids = []
        self._open_events[events] = len(pairs)
        for index, (values, (channel, output)) in enumerate(zip(request["ranks"], pairs, strict=True)):
            spec = RankSpec(**{**request["common"], **values})
            others = {fd for pair in pairs for fd in pair} - {channel, output}
            pid = self._fork(spec, channel, output, others)
            self._children[pid] = (index, events)
            pids.append(pid)
        for descriptor in rest:
            os.close(descriptor)
        return {"pids": pids}

    def _fork(self, spec: RankSpec, channel: int, output: int, others: set[int]) -> int:
        agent_pid, fork_only = os.getpid(), self._may_fork()
        pid = os.fork()
        if pid:
            return pid
        try:
            # A rank that kept these open would keep its peers' pipes and the agent's control alive.
            for descriptor in {*others, *self._open_events, *self._wake, self._control.fileno()}:
                os.close(descriptor)
            if fork_only:
                become_rank(spec, socket.socket(fileno=channel), output, agent_pid)
            os.set_inheritable(channel, True)
            os.set_inheritable(output, True)
            args = json.dumps([vars(spec), channel, output, agent_pid, sys.path])
            os.execv(sys.executable, [sys.executable, "-c", _EXEC_RANK, args])
        finally:
            os._exit(70)

    def _may_fork(self) -> bool:
        if os.environ.get("DTLEARN_START") == "exec" or sys.platform != "linux":
            return False
        torch = sys.modules["torch"]
        return len(os.listdir("/proc/self/task")) == 1 and not torch.cuda.is_initialized()

    def _signal(self, pids: list[int], number: int, group: bool) -> dict[str, Any]:
        """Signal ranks by pid. Only own, living children: a pid that the system reused is never hit."""
        self._reap()
        for pid in pids:
            if pid in self._children:
                # A rank that has not reached setsid yet has no group of its own: then the process alone.
                with contextlib.suppress(ProcessLookupError):
                    if group and os.getpgid(pid) == pid:
                        os.killpg(pid, number)
                    else:
                        os.kill(pid, number)
        return {"alive": [pid for pid in pids if pid in self._children]}

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid not in self._children:
                continue
            # What it left behind in its group ends with it; the system gives its number to nobody else so soon.
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
            index, events = self._children.pop(pid)
            with contextlib.suppress(OSError):  # the head may have stopped listening to this run
                os.write(events, wire.encode({"index": index, "status": os.waitstatus_to_exitcode(status)}))
            self._open_events[events] -= 1
            if self._open_events[events] == 0:
                del self._open_events[events]
                os.close(events)

    def _end_all(self) -> None:
        """The head is gone: end its ranks, and delete the folders of runs that it could not delete itself."""
        self._signal(list(self._children), signal.SIGKILL, True)
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
    import torch
    import torch._dynamo  # a process's first optimizer loads it: a second, here once instead of on every rank
    import torch.distributed

    with contextlib.suppress(ImportError):  # cells on ranks need these; run_ranks doesn't
        import cloudpickle  # noqa: F401
        import matplotlib.pyplot  # noqa: F401

        from . import rank_kernel  # noqa: F401
    from . import rank_run  # noqa: F401

    # One matmul now: lazily built tables are then shared by all ranks instead of built in each.
    torch.ones(2, 2) @ torch.ones(2, 2)
    gc.collect()
    gc.freeze()  # objects that never move again stay in pages shared with the ranks
    Agent(socket.socket(fileno=control_fd)).serve()


# What the head runs in a new interpreter. The path is appended: it only matters where dtlearn is not installed.
BOOT = (
    f"import sys; sys.path.append({str(Path(__file__).parents[2])!r}); "
    "from dtlearn.runtime.agent import main; main(int(sys.argv[1]))"
)
