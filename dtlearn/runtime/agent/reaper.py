"""The reaper of one run: a small process between the agent and the ranks that makes sure nothing of them stays.

The kernel hands it every process of the run that loses its parent, however it tried to get away (a second fork, a
session of its own). When the last rank has ended, or the agent is gone, the reaper ends them all, says so, and ends.
At isolation level 2 it is process number 1 of namespaces of its own: its end is the end of everything in them.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from .. import wire
from ..machine import namespaces
from ..machine.isolation import refused
from ..machine.patience import TO_FORK, TO_SIGNAL, Patience, seconds_in_queue
from ..machine.processes import children, close_all_but, descendants, ended_children, sweep, wake_at_ends
from .forked_ranks import ForkedRanks


class Reaper:
    """The agent's end of a reaper. Makes it, and through it the ranks.

    Args:
        request, descriptors: as for `ForkedRanks`; the descriptors are closed here.

    Raises:
        OSError: the namespaces of level 2 are refused, or the process could not be made.
    """

    def __init__(self, request: dict[str, Any], descriptors: list[int]) -> None:
        self.run_dir: str = request["common"]["run_dir"]
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                close_all_but({0, 1, 2, theirs.fileno(), *descriptors})
                _become_reaper(theirs, request, descriptors)
            except BaseException:
                traceback.print_exc()  # into the agent's log
            finally:
                os._exit(70)
        theirs.close()
        for descriptor in descriptors:
            os.close(descriptor)
        self._control = ours
        try:
            self.pids = self._meet(request["common"].get("isolation") or {})
        except BaseException:
            self.kill()
            raise

    def signal(self, pids: list[int], number: int, group: bool) -> list[int]:
        """Signal ranks by pid. Returns those that live."""
        indices = [self.pids.index(pid) for pid in pids]
        try:
            self._control.sendall(wire.encode({"indices": indices, "signal": number, "group": group}))
            return [self.pids[i] for i in self._hear(TO_SIGNAL)["alive"]]
        except (OSError, EOFError) as error:
            # It has just ended with its ranks; or learners' code stopped it, and then its end is theirs.
            if isinstance(error, TimeoutError):
                self.kill()
            return []

    def end(self) -> None:
        """Tell it to end the ranks, everything that they started, and itself; this does not wait for it."""
        self._control.close()

    def kill(self) -> None:
        """The hard way: its ranks die with it; what they started comes to the agent."""
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def _meet(self, isolation: dict[str, Any]) -> list[int]:
        """Hear of the ranks. In namespaces they have numbers of their own there; the agent's are asked for here."""
        try:
            reply = self._hear(TO_FORK)
        except EOFError:
            raise OSError("the reaper of the run ended at once") from None
        if "error" in reply:
            raise PermissionError(reply["error"])
        pids: list[int] = reply["pids"]
        if isolation.get("level") == 2:
            (first,) = children(self.pid)
            outside = {_innermost_pid(pid): pid for pid in children(first)}
            pids = [outside[pid] for pid in pids]
        self._control.sendall(wire.encode({}))  # now it may wait for ranks that have ended: we have their numbers
        return pids

    def _hear(self, seconds: float) -> dict[str, Any]:
        """The next message. Raises TimeoutError if none comes in so much time of patience, EOFError if it has ended."""
        patience = Patience(seconds, in_queue=lambda _: seconds_in_queue([self.pid, *descendants(self.pid)]))
        while not select.select([self._control], [], [], left := patience.left())[0]:
            if not left:
                raise TimeoutError(f"the reaper of the run said nothing for {seconds:g} s")
        return wire.receive(self._control)[0]


def _innermost_pid(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[-1]) for line in file if line.startswith("NSpid:"))


def _become_reaper(control: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    """The reaper's process."""
    signal.set_wakeup_fd(-1)  # the agent's
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # a signal to the agent's group is not for it
    try:
        _shut_in(request)
    except OSError as error:
        control.sendall(wire.encode({"error": refused(namespaces.refusal(error))}))
        os._exit(0)
    wake = wake_at_ends()
    forked = ForkedRanks(request, descriptors)
    level = (request["common"].get("isolation") or {}).get("level", 1)
    if level == 2:
        namespaces.keep_out()
    control.sendall(wire.encode({"pids": forked.pids}))
    with contextlib.suppress(EOFError, OSError):
        wire.receive(control)
        _serve(forked, control, wake)
    cut_short = bool(forked.living)  # the agent is gone, or it wants the end: how single ranks ended says nothing
    forked.kill()
    sweep(alone=level == 2)
    if not cut_short:
        forked.close()
    os._exit(0)


def _serve(forked: ForkedRanks, control: socket.socket, wake: int) -> None:
    """Signal ranks when the agent asks for it, until the last one has ended or there is nobody to ask."""
    decoder = wire.Decoder()
    while forked.living:
        both: list[Any] = [control, wake]
        ready = select.select(both, [], [])[0]
        if wake in ready:
            os.read(wake, 4096)
        for pid, status, _ in ended_children():
            forked.ended(pid, status)
        if control in ready:
            data = control.recv(1 << 16)
            if not data:
                return
            for request, _ in decoder.feed(data):
                alive = forked.signal(request["indices"], request["signal"], request["group"])
                control.sendall(wire.encode({"alive": alive}))


def _shut_in(request: dict[str, Any]) -> None:
    """Become the one to whom the run's orphans come; at level 2 also number 1 of new namespaces."""
    common = request["common"]
    isolation, limits = common.get("isolation") or {}, common.get("limits") or {}
    namespaces.adopt_orphans()
    namespaces.die_with_parent(signal.SIGCONT)  # if ranks have stopped it, it hears of the agent's end then
    if isolation.get("level") != 2:
        return
    namespaces.die_with_parent()
    namespaces.enter()
    pid = os.fork()
    if pid:  # the process outside: nothing but the handle by which the agent holds the one inside
        close_all_but({0, 1, 2})
        os.waitpid(pid, 0)
        os._exit(0)
    namespaces.die_with_parent()
    shown = isolation.get("shown")
    needed = [common["cwd"], *common["sys_path"], sys.prefix, sys.base_prefix, str(Path(__file__).parents[3])]
    namespaces.furnish(
        own=[common["env"].get("TMPDIR", "/tmp")],
        writable=[common["run_dir"], *isolation.get("writable", ())],
        readable=needed if shown is None else shown,
        hidden=isolation.get("hidden", ()),
        alone=shown is not None,
        processes=limits.get("processes"),
    )
