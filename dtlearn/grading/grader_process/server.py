"""Has torch loaded, and forks a guard for every job; the guard forks an agent for the ranks, and a grader.

    class grader -- server +- guard of a job +- its grader: reads, compiles, runs, judges, with limits
                           |                 +- its agent -- ranks
                           +- guard of a job ...

The agent is forked before the job is known: no check, no seed and no answer is in the memory that ranks inherit.
"""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys

from ...runtime.agent import server as agent_server
from ...runtime.machine.namespaces import die_with_parent
from ...runtime.machine.patience import TO_VANISH, Patience
from ...runtime.machine.processes import close_all_but, ended_children, wake_at_ends
from ...runtime.rank import preload
from . import grader

_MESSAGE = 20  # bytes of a request: a number of seconds
_UNIT = 10 if sys.platform == "linux" else 0  # memory is told in KiB, or in bytes


def main(control_fd: int) -> None:
    """Fork a guard for every socket that arrives, until `control_fd` closes. Each message is a number of seconds."""
    preload.load_for_all()
    preload.load("torch._dynamo", "dtlearn.grading.on_rank.run_answer")
    control = socket.socket(fileno=control_fd)
    # Nobody waits for guards: their sockets say when they have ended. But learners' code could stop one.
    signal.signal(signal.SIGCHLD, lambda *_: [*ended_children(end_stopped=True)])
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, _MESSAGE, 1)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            with contextlib.suppress(BaseException):
                _guard(descriptors[0], float(data))
            os._exit(70)
        os.close(descriptors[0])


def _guard(line_fd: int, seconds: float) -> None:
    """Start a grader, and end it when its time is over or nobody listens any more. Says how it ended."""
    os.setsid()
    die_with_parent()
    close_all_but({0, 1, 2, line_fd})
    line = socket.socket(fileno=line_fd)
    wake = wake_at_ends()
    ours, theirs = socket.socketpair()
    agent = os.fork()
    if agent == 0:
        signal.set_wakeup_fd(-1)
        close_all_but({0, 1, 2, theirs.fileno()})
        with contextlib.suppress(BaseException):
            agent_server.serve(theirs)
        os._exit(70)
    theirs.close()
    parent = os.getpid()
    worker = os.fork()
    if worker == 0:
        signal.set_wakeup_fd(-1)
        die_with_parent()
        with contextlib.suppress(BaseException):
            if os.getppid() == parent:
                grader.work(line, ours)
        os._exit(70)
    ours.close()
    status, over, peak, patience = None, False, 0, Patience(seconds, [worker])
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(line, 0)  # only whether it is closed: what comes is for the grader
    while status is None:
        ready = dict(poll.poll(1000 * patience.left()))
        if wake in ready:
            os.read(wake, 4096)
            for child, ended, used in ended_children(end_stopped=True):
                if child == worker:
                    status = os.waitstatus_to_exitcode(ended)
                    # We were forked from the same process and hold nothing else: the difference is the grader's own.
                    peak = (used.ru_maxrss - resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) << _UNIT
        elif not over and (line.fileno() in ready or patience.over()):  # nobody listens any more, or the time is up
            over = True
            poll.unregister(line)
            os.kill(worker, signal.SIGKILL)
            patience = Patience(TO_VANISH, [worker])
        elif over and patience.over():
            break
    with contextlib.suppress(OSError):
        line.sendall(json.dumps({"ended": status, "late": over, "peak": max(0, peak)}).encode())
    os._exit(0)
