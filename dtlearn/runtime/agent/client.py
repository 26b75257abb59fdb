"""What starts, signals and ends ranks, and the one that does it here: the head's end of this machine's agent."""

import contextlib
import socket
import threading
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import wire
from ..device import Placement, check_world_size, place
from ..errors import LaunchError
from ..link.link import Link, connect
from ..machine.helper_process import HelperProcess, OnePerProcess
from ..machine.memory import free_memory
from ..machine.patience import TO_END_RANKS, Patience
from ..machine.processes import fill_standard_streams
from ..machine.run_folder import delete_folder

_SERVER = "dtlearn.runtime.agent.server"
AGENT_ENVIRONMENT = {
    # numpy's and torch's helper threads would make the agent's fork unsafe; one thread per rank is the course's rule.
    **{name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")},
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # see `use_huge_pages`; Python's own objects are not among these
}


class Agent:
    """Where ranks are started, of one machine or of several: `World` and `start_ranks` see ranks, not machines.

    What is said here holds for one machine. There a rank's handle, in `pids`, is its process id.
    """

    # How long it may take to notice that a machine, and its ranks, are gone. 0: there is none but ours. Otherwise ranks
    # may be missing until their machine is back.
    seconds_to_notice_a_loss = 0.0

    def place(self, size: int, device: str, link: Link | None) -> Placement:
        """Backend and device of each of `size` ranks. Raises ValueError for a wrong `size`, `device` or `link`."""
        raise NotImplementedError

    def gather(self, run_dir: Path) -> None:
        """Have all machines ready to start ranks for `run_dir`. Raises LaunchError, saying which one is not."""

    def check(self, ranks: list[int]) -> None:
        """Raise HostLost if new processes for these ranks cannot be started now."""

    def free_memory(self) -> int | None:
        """Bytes that ranks started now may use; None if that is for each machine to judge."""
        return free_memory()

    def start(self, common: dict[str, Any], ranks: list[dict[str, Any]], descriptors: list[int]) -> list[int]:
        """Start ranks; see `server.AgentServer._start`. Returns their handles."""
        raise NotImplementedError

    def signal(self, pids: list[int], number: int, *, group: bool = False) -> list[int]:
        """Signal those ranks (`group`: and the processes that they started). Returns the handles still alive."""
        raise NotImplementedError

    def reach(self, pid: int, connection: dict[str, Any], folder: Path) -> dict[str, Any]:
        """How to connect from this process to the kernel of a rank that says `connection` of itself."""
        return connection

    def where(self, pid: int) -> dict[str, Any]:
        """What a rank's handle stands for: `pid`, and `host` if there are several."""
        return {"pid": pid}

    def patience(self, seconds: float, pids: Iterable[int] = ()) -> Patience:
        """A patience of so many seconds for those ranks, more where they cannot get a processor."""
        return Patience(seconds, pids)

    def abandon(self, run_dir: str) -> None:
        """End a run that nobody holds any more, and delete its folder. Does not wait, never raises: for finalizers."""
        raise NotImplementedError

    def close(self) -> None:
        """No ranks will be started until the next `gather`: other machines are sent home."""


class LocalAgent(Agent):
    """The agent process of this machine, which all worlds of this process share. Safe to use from several threads."""

    def __init__(self, control: socket.socket | None = None, process: Any = None) -> None:
        self._lock = threading.Lock()
        self._decoder = wire.Decoder()
        with contextlib.ExitStack() as opened:
            if control is None:
                fill_standard_streams()
                control, theirs = map(opened.enter_context, socket.socketpair())
                number = theirs.fileno()
                process = HelperProcess(_SERVER, [number], descriptors=[number], environment=AGENT_ENVIRONMENT)
                opened.pop_all()
                theirs.close()
        self._control, self.process = control, process
        self._hello: dict[str, Any] | None = None
        self._asked = 0
        self._abandoned: list[str] = []

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    def hello(self) -> dict[str, Any]:
        """Wait until the agent has loaded torch; what it says of its machine: `num_gpus`, `forks`, `pid`."""
        if self._hello is None:
            self._hello = self._ask({"do": "hello"})
        return self._hello

    def load(self, module: str) -> None:
        """Have a module of ours loaded, once, for ranks that would each load it. Waits for it."""
        self._ask({"do": "load", "module": module})

    def prepare(self, kind: str) -> None:
        """Have what ranks of this kind need loaded, see `RankSpec`. Does not wait: who starts ranks does."""
        with self._lock, contextlib.suppress(OSError):  # whoever asks next hears how it ended
            self._asked += 1  # the answer is skipped, as that to an interrupted request
            self._control.sendall(wire.encode({"do": "load for", "kind": kind, "id": self._asked}))

    def place(self, size: int, device: str, link: Link | None) -> Placement:
        return connect(place(check_world_size(size), self.hello()["num_gpus"], device), link)

    def start(self, common: dict[str, Any], ranks: list[dict[str, Any]], descriptors: list[int]) -> list[int]:
        return list(self._ask({"do": "start", "common": common, "ranks": ranks}, descriptors)["pids"])

    def signal(self, pids: list[int], number: int, *, group: bool = False) -> list[int]:
        return list(self._ask({"do": "signal", "pids": pids, "signal": int(number), "group": group})["alive"])

    def abandon(self, run_dir: str) -> None:
        # Garbage can be collected anywhere, also while this thread speaks with the agent.
        if not self.process.ours:  # the garbage of a forked child: the run is its parent's
            return
        self._abandoned.append(run_dir)
        while self._abandoned and self._lock.acquire(blocking=False):
            try:
                self._send_abandoned()
            finally:
                self._lock.release()

    def end(self) -> None:
        """End the agent and, with it, every rank that it started."""
        self._control.close()
        self.process.close(TO_END_RANKS)

    def _ask(self, request: dict[str, Any], descriptors: list[int] | None = None) -> dict[str, Any]:
        with self._lock:
            self._asked += 1
            try:
                data = wire.encode({**request, "id": self._asked})
                sent = socket.send_fds(self._control, [data], descriptors or [])
                self._control.sendall(data[sent:])
                answer: dict[str, Any] = {}
                # An interrupted request leaves its answer in the socket: skip what was not asked now.
                while answer.get("id") != self._asked:
                    self.process.wait_for(self._control)
                    piece = self._control.recv(1 << 16)
                    if not piece:
                        raise EOFError
                    for message, _ in self._decoder.feed(piece):
                        answer = message
                self._send_abandoned()
            except (OSError, EOFError) as error:
                raise LaunchError(self._obituary()) from error
        if "error" in answer:
            raise LaunchError(f"the ranks could not be started: {answer['error']}")
        return answer

    def _send_abandoned(self) -> None:
        while self._abandoned:
            self._asked += 1  # the answer is skipped, as that to an interrupted request
            run_dir = self._abandoned.pop()
            try:
                self._control.sendall(wire.encode({"do": "end", "run_dir": run_dir, "id": self._asked}))
            except OSError:  # the agent is gone, and its ranks with it
                delete_folder(Path(run_dir))

    def _obituary(self) -> str:
        return (
            f"the helper process that starts ranks {self.process.ending} (exit code {self.process.exit_code}). "
            "`dtlearn doctor` checks what it needs. Its last words:\n"
            + ("\n".join(self.process.last_words()) or "(none)")
        )


_agents = OnePerProcess(LocalAgent)


def get_agent() -> LocalAgent:
    """This process's agent, started if there is none. It may still be loading: `hello()` waits for it."""
    return _agents.get()


def use_forked(control: socket.socket) -> None:
    """Take the process at the other end of `control`, see `server.serve`, as this process's agent."""
    last_words: list[str] = []
    kept = {"ours": True, "alive": True, "exit_code": None, "last_words": lambda: last_words, "close": lambda _: None}
    _agents.current = LocalAgent(control, types.SimpleNamespace(**kept, ending="ended", wait_for=lambda _: True))


def close_agent() -> None:
    """End this process's agent, if it has one, and every rank with it."""
    _agents.end()
