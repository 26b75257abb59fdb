"""How long we wait for what, in one place; and waiting that stands still while nobody can get a processor.

A class of learners on one machine is the normal case: with ten times more work than cores, an answer that takes 0.1 s
on a quiet machine takes seconds. So a limit on how long a process may take to answer is not counted in seconds of the
clock, but in seconds in which that process, and we who wait for it, could have run: the time in which one of its
threads stood in the processor's queue does not count. Linux keeps that time for every thread (`schedstat`, second
number; Documentation/scheduler/sched-stats.rst); elsewhere the load of the machine is the measure.

A process that will never answer sleeps, or is stopped, or computes: its time runs. In any case a wait ends, after
`MOST` times its seconds.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from .cores import num_cores

# What the ranks of a cell get, step by step, to become usable again (`world/recovery.py`).
AFTER_INTERRUPT = 0.3  # to end by an interrupt
AFTER_SECOND_INTERRUPT = 1.0  # likewise; a rank that had not begun the cell yet ignores the first
TO_CUT = 2.0  # to cut their connections
AFTER_CUT = 3.0  # to leave the collective that they were stuck in
TO_REPORT = 10.0  # to write their traceback, once they have left the learner's code
TO_MEET = 20.0  # to make new process groups
# What a rank gets to say how it stands.
TO_ANSWER = 1.0  # on the side channel, which is free while a cell runs
TO_ANSWER_BRIEFLY = 0.3  # likewise, for a line that can wait for the next look
TO_DUMP = 0.3  # to write its stack down, when its interpreter does not answer
TO_VANISH = 10.0  # to be gone after it was killed; one that waits for a disk takes long
TO_START = 60.0  # until it can run cells; the helper process may have torch to load first
TO_SAY = 60.0  # what a short request asks of it, behind a cell: a value, what it sets
TO_SET_UP = 30.0  # each setup cell, on a rank that is new
TO_RUN = 600.0  # a function of the learner's, behind a notebook
TO_RUN_ON_FRESH_RANKS = 60.0  # likewise, see `run_ranks`
TO_RUN_A_SCRIPT = 300.0  # under torchrun
# How long ranks may go on after one of them has failed.
AFTER_FAILURE = 10.0  # computing
AFTER_DEATH = 1.0  # in which they usually notice by themselves that a peer has died
STUCK_FOR = 0.5  # inside one communication call: then they are stuck
# A collective that waits this long gives up by itself; the time limit of a cell and the interrupt come long before.
GROUP_TIMEOUT = 1800.0

# What processes get that start, watch and end ranks.
TO_FORK = 30.0  # all ranks of a run
TO_SIGNAL = 2.0  # a reaper takes microseconds, but learners' code could have stopped it
TO_SAY_THE_SAME = 0.3  # ranks that may still report the same failure as the first, or an earlier one
TO_LEAVE = 2.0  # ranks that have finished, before they are killed: what runs at their exit
TO_END_POLITELY = 3.0  # a command, before it is killed
TO_END_RANKS = 2 * TO_VANISH + 5.0  # an agent, before it is killed: it ends its ranks, and deletes their folders
TO_BE_ENDED = 3.0  # what was interrupted, until we go on: others end it
TO_STOP_GRADING = TO_BE_ENDED + 2.0  # a judge, before it is ended itself: it ends its ranks
TO_SAY_HOW_IT_ENDED = 1.0  # a helper process that has closed its line: its exit code
TO_TELL_WHAT_HAPPENED = 3.0  # launchers of other nodes, of a failure
# Between the machines of a lab; `patience` and `wait` in lab.toml are its owner's.
HEARTBEAT = 1.0  # seconds between two signs of life
TO_JOIN = 20.0  # a node, until the head has greeted it
TO_OBEY = 150.0  # a node that is heard of, a request: ranks to start may take it MOST * TO_FORK
TO_REACH_A_HOST = 4.0  # over the network of a lab
TO_REACH_A_STORE = 5.0  # on this machine
TO_PART = 2.0  # what was said last, on a busy machine
TO_LOOK_UP_A_NAME = 3.0  # of a host
TO_LIST_GPUS = 10.0  # the driver's own tool
TO_LOAD_TORCH = 60.0  # a fresh interpreter, on a cold disk
TO_TRY_NAMESPACES = 5.0  # what this machine allows
TO_LISTEN = 60.0  # JupyterLab, until a browser may come; a cold disk needs ten
TO_END_KERNELS = 10.0  # JupyterLab, before it is killed
TO_TRY_RANKS = 20.0  # the doctor's trial of two ranks
TO_TRY_A_LAB = 60.0  # likewise, of all nodes
TO_GRADE = 120.0  # all cases of an answer, unless an instructor says otherwise
# What hand-ins get besides that.
TO_READ_A_HAND_IN = 300.0  # on a slow disk; bounded by processor time too, see `classroom/reading/reader.py`
TO_READ_AN_ANSWER = 130.0  # to be read and compiled, and for its last case on a busy machine
HEAD_START = 10.0  # a notebook and its first ranks, to load torch, before a judge does that nobody has asked yet
HEADLESS_CELL = 60.0  # a cell that has no time limit of its own, where nobody is there to interrupt
TO_RUN_CALLBACKS = 1.0  # a callback of a communication that has not run by then never will
TO_DRAIN = 2.0  # what a cell has printed, before its reply
# How often ranks are looked at that make their group themselves, where the call log says nothing.
FIRST_LOOK, NEXT_LOOK = 3.0, 1.0
LOOKS_APART = 0.5  # the two that tell a loop from progress, and computing from sleeping
LOOK_AT_THE_SILENT = 1.0  # a helper process that has not answered: somebody may have stopped it

MOST = 5.0  # a wait takes at most as many times its seconds, however busy the machine is
_LEAST = 0.05  # seconds until the next look at the queue


class Patience:
    """A time limit for processes of this machine to do something.

    Args:
        seconds: on a machine that has a processor for everybody.
        pids: of those we wait for. This process always counts as well: it has to hear the answer.
        in_queue: tells how long processes have waited for a processor so far, `{pid: seconds}`; by default `pids`, of
            this machine. One that comes later has waited since it began, one that is too busy to be asked (inf) always.
    """

    def __init__(
        self,
        seconds: float,
        pids: Iterable[int] = (),
        in_queue: Callable[[Collection[int]], Mapping[int, float]] | None = None,
    ) -> None:
        self.seconds = seconds
        self._begun = time.monotonic()
        self._own = _queued(os.getpid())
        self._pids, self._in_queue = list(pids), in_queue or seconds_in_queue
        self._before = {p: 0.0 if waited == math.inf else waited for p, waited in self._in_queue(self._pids).items()}
        self._computed = {pid: _computed(pid) for pid in self._pids} if in_queue is None else {}
        self._stood_still = 0.0

    def left(self) -> float:
        """Seconds that are left; 0 if there are none."""
        elapsed = time.monotonic() - self._begun
        left = self.seconds + self._stood_still - elapsed
        if left <= 0:  # only now: a look reads a file for every thread
            self._stood_still = min(self._waited(elapsed), elapsed)
            left = self.seconds + self._stood_still - elapsed
            left = max(left, _LEAST) if left > 0 else left
        return max(0.0, min(left, self.seconds * MOST - elapsed))

    @property
    def starved(self) -> bool:
        """Whether it ended only because no wait takes longer, and none of them could run for half of `seconds`."""
        elapsed = time.monotonic() - self._begun  # looked at now: the last look may be seconds ago
        computed = any(_computed(pid) - before >= self.seconds / 2 for pid, before in self._computed.items())
        return not computed and min(self._waited(elapsed), elapsed) >= self.seconds * (MOST - 0.5)

    def over(self) -> bool:
        """Whether nobody should wait any longer."""
        return self.left() <= 0

    def _waited(self, elapsed: float) -> float:
        """Seconds since the beginning in which those who are to answer, or we, waited for a processor."""
        if self._own is None:
            return elapsed * (1 - 1 / crowding())
        own = max(0.0, (_queued(os.getpid()) or 0.0) - self._own)  # threads that end take their time with them
        now = self._in_queue(self._pids)
        return own + max([0.0, *(waited - self._before.get(pid, 0.0) for pid, waited in now.items())])


def crowding() -> float:
    """How many programs want each processor of this machine, by its load of the last minute; at least 1."""
    return max(1.0, os.getloadavg()[0] / num_cores())


def busy() -> bool:
    """Whether a program gets less than half of a processor now: this one computes, for 0.2 s of processor time."""
    begun, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < 0.2:
        pass
    return time.monotonic() - begun > 0.4


def seconds_in_queue(pids: Collection[int]) -> dict[int, float]:
    """{pid: how long its threads have waited for a processor so far}; without those of whom nobody keeps that."""
    return {pid: waited for pid in pids if (waited := _queued(pid)) is not None}


def _queued(pid: int) -> float | None:
    """Seconds that the threads of a process have waited for a processor so far; None if nobody keeps that."""
    return sum(waited for _, waited in times) / 1e9 if (times := _schedstat(pid)) else None


def _computed(pid: int) -> float:
    """Seconds for which its threads have had a processor so far; 0 if nobody keeps that."""
    return sum(had for had, _ in _schedstat(pid)) / 1e9


def _schedstat(pid: int) -> list[list[int]]:
    """By thread of a process: nanoseconds for which it has had a processor, and has waited for one."""
    times = []
    # Not our number: of our own namespace, it may be another's in the /proc of a namespace around it.
    folder = "/proc/self/task" if pid == os.getpid() else f"/proc/{pid}/task"
    with contextlib.suppress(OSError):  # not Linux; or it has ended
        for thread in os.listdir(folder):
            with contextlib.suppress(OSError, ValueError), open(f"{folder}/{thread}/schedstat") as file:
                times.append([int(word) for word in file.read().split()[:2]])
    return times
