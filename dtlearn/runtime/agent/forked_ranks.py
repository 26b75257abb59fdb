"""The ranks of one start request, and all that they start: forks them, signals them, reports their deaths, ends them.

It lives in a reaper process of its own (isolation levels 1 and 2) or in the agent (level 0, and systems without
Linux's means). Either way it runs no code of the learner's.
"""

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Collection
from typing import Any

from .. import wire
from ..machine.processes import close_all_but
from ..rank.main import become_rank
from ..rank.spec import RankSpec

_EXEC_RANK = """
import json, socket, sys
spec, channel, output, parent, path = json.loads(sys.argv[1])
sys.path[:] = path
import torch
from dtlearn.runtime.rank.main import become_rank
from dtlearn.runtime.rank.spec import RankSpec
become_rank(RankSpec(**spec), socket.socket(fileno=channel), output, parent)
"""


class ForkedRanks:
    """Ranks that were started together.

    Args:
        request: "common" and "ranks": what all and what each of them is told, see `RankSpec`.
        descriptors: where deaths are reported, then a channel and an output for each rank. They are closed here.
    """

    def __init__(self, request: dict[str, Any], descriptors: list[int]) -> None:
        self.run_dir: str = request["common"]["run_dir"]
        self._events = descriptors[0]
        self._last: dict[str, Any] | None = None
        pairs = list(zip(descriptors[1::2], descriptors[2::2], strict=True))
        self.pids = [
            _fork(RankSpec(**{**request["common"], **values}), channel, output)
            for values, (channel, output) in zip(request["ranks"], pairs, strict=True)
        ]
        self.living = {pid: index for index, pid in enumerate(self.pids)}
        for descriptor in descriptors[1:]:
            os.close(descriptor)

    def signal(self, indices: Collection[int], number: int, group: bool) -> list[int]:
        """Signal ranks by their place in this start (`group`: and their process groups). Returns those that live.

        Only children that nobody has waited for: a number that the system gave to another process is never hit.
        """
        for pid in [pid for pid, index in self.living.items() if index in indices]:
            # A rank that has not reached setsid yet has no group of its own: then the process alone.
            with contextlib.suppress(ProcessLookupError):
                if group and os.getpgid(pid) == pid:
                    os.killpg(pid, number)
                else:
                    os.kill(pid, number)
        return [index for index in self.living.values() if index in indices]

    def kill(self) -> None:
        """End every rank and its process group."""
        self.signal(range(len(self.pids)), signal.SIGKILL, True)

    def ended(self, pid: int, status: int) -> None:
        """Take note of a child that was waited for. All but the last death are reported at once."""
        if pid not in self.living:
            return
        # What it left behind in its group ends with it; the system gives its number to nobody else so soon.
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        death = {"index": self.living.pop(pid), "status": os.waitstatus_to_exitcode(status)}
        if self.living:
            self._report(death)
        else:
            self._last = death

    def close(self) -> None:
        """Report the last death: whoever hears of it may rely on nothing being left. Call when that is so."""
        if self._last is not None:
            self._report(self._last)
        os.close(self._events)

    def _report(self, death: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the head may have stopped listening to this run
            os.write(self._events, wire.encode(death))


def may_fork() -> bool:
    """Whether a fork of this process is a sound copy: then ranks need not load torch themselves."""
    if os.environ.get("DTLEARN_START") == "exec" or sys.platform != "linux":
        return False
    torch = sys.modules["torch"]
    return len(os.listdir("/proc/self/task")) == 1 and not torch.cuda.is_initialized()


def _fork(spec: RankSpec, channel: int, output: int) -> int:
    parent, fork_only = os.getpid(), may_fork()
    pid = os.fork()
    if pid:
        return pid
    try:
        # A rank that kept others open would keep its peers' pipes and the agent's sockets alive.
        close_all_but({0, 1, 2, channel, output})
        if fork_only:
            become_rank(spec, socket.socket(fileno=channel), output, parent)
        os.set_inheritable(channel, True)
        os.set_inheritable(output, True)
        args = json.dumps([vars(spec), channel, output, parent, sys.path])
        os.execv(sys.executable, [sys.executable, "-c", _EXEC_RANK, args])
    finally:
        os._exit(70)
