"""Processes as /proc shows them: who is below whom, and whether a number still means the same process."""

import contextlib
import itertools
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from .patience import TO_VANISH, Patience


def descendants(pid: int) -> list[int]:
    """Processes below `pid`, children before theirs (Linux; elsewhere [])."""
    below = children(pid)
    for child in below:  # grows while it is gone through
        below += children(child)
    return below


def children(pid: int) -> list[int]:
    """Processes whose parent is `pid`, also those that have ended and that it has not waited for; [] if unknown."""
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                pids += map(int, file.read().split())
    return pids


def start_time(pid: int) -> int | None:
    """When a process began, in the kernel's ticks since boot; None if there is none, or it is a zombie.

    A number alone does not name a process: the system gives it to another one later.
    """
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat") as file:
        # "N (command) S parent ...": the command may hold spaces and brackets.
        fields = file.read().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    return None


def wake_at_ends() -> int:
    """A descriptor that can be read, for `select`, when a child has ended; what is read says nothing."""
    wake, write = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])  # who started this process may have blocked it
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return wake


def ended_children(end_stopped: bool = False) -> Iterator[tuple[int, int, resource.struct_rusage]]:
    """The number, the status and the accounts of each child that has ended, and was waited for. `end_stopped`: kill
    stopped ones."""
    with contextlib.suppress(ChildProcessError):
        while (child := os.wait4(-1, os.WNOHANG | (os.WUNTRACED if end_stopped else 0)))[0]:
            if os.WIFSTOPPED(child[1]):
                os.kill(child[0], signal.SIGKILL)
            else:
                yield child


def kill_below(spare: Collection[int] = ()) -> list[int]:
    """Kill all processes below this one, and return them. Children in `spare` stay, with all that is below them."""
    first = [pid for pid in children(os.getpid()) if pid not in spare]
    below = [*first, *(pid for child in first for pid in descendants(child))]
    for pid in below:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return below


def sweep(
    ended: Callable[[int, int], object] = lambda pid, status: None, seconds: float = TO_VANISH, alone: bool = False
) -> list[int]:
    """Kill everything below this process, which must be their subreaper, until it has no child left.

    The kernel gives it every process that has lost its parent, so "no child" means that nothing is left. `ended` is
    called with the number and the status of each child that has ended. `alone`: this is process number 1 of a namespace
    of its own: then all at once, so that none can slip away. Returns what did not end in so much time of patience.
    """
    assert not alone or os.getpid() == 1
    patience = Patience(seconds)
    while True:
        for pid, status, _ in ended_children():
            ended(pid, status)
        if alone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        left = [] if alone else kill_below()
        if not left and (not alone or not _has_children()):
            return []
        if patience.over():
            return left
        time.sleep(0.002)


def _has_children() -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    return False


def take_interrupts() -> None:
    """Let an interrupt raise KeyboardInterrupt here, and end what we start.

    A shell without job control starts programs in the background with interrupts ignored, and everything that they
    start inherits that: a process that has to be interruptible says so itself.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def take_endings() -> None:
    """Let a request to end, and a terminal that is closed (but not under nohup), raise KeyboardInterrupt here too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def has_ended(process: subprocess.Popen[Any], seconds: float) -> bool:
    """Whether a process that we started ends in so much time of patience, in which it ends what it started itself."""
    patience = Patience(seconds, [process.pid, *descendants(process.pid)])
    while process.poll() is None and (left := patience.left()):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(left)
    return process.poll() is not None


def communicate(process: subprocess.Popen[Any], seconds: float, text: Any = None) -> tuple[Any, Any]:
    """As `Popen.communicate(text)`; it is killed, and TimeoutExpired raised, if so much time of patience is over."""
    patience = Patience(seconds, [process.pid])
    while True:
        try:
            return process.communicate(text, patience.left())
        except subprocess.TimeoutExpired:
            text = None  # it has been taken
            if patience.over():
                process.kill()
                process.communicate()
                raise


def close_all_but(keep: set[int]) -> None:
    """Close every file descriptor that is not in `keep`: a forked process inherits more than it should hold open."""
    edges = [-1, *sorted(keep), os.sysconf("SC_OPEN_MAX")]
    for low, high in itertools.pairwise(edges):
        if low + 1 < high:  # an empty range that begins at 0 would be taken for all
            os.closerange(low + 1, high)


def fill_standard_streams() -> None:
    """Open those of this process's three standard streams that are closed: what is opened next would get their numbers.

    A child that inherits it under such a number would lose it to its own standard stream.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
