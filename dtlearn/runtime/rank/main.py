"""From a freshly forked process to a rank: its own session, environment, output and random state.

Runs on the ranks, before anything of the learner's.
"""

import faulthandler
import os
import signal
import socket
import sys
import tempfile
from typing import TextIO

from ..machine import namespaces
from ..machine.limits import Limits
from ..machine.memory import go_first_when_memory_runs_out
from ..recording import clock
from .preload import note_what_was_used
from .spec import STACK_SIGNAL, RankSpec, stack_file


def become_rank(spec: RankSpec, channel: socket.socket, output_fd: int, parent_pid: int) -> None:
    """Turn this process into the rank that `spec` describes, run it, and end the process."""
    code = 70
    streams: list[TextIO] = []
    try:
        _leave_the_agent(parent_pid)
        streams += _connect_output(output_fd)
        _take_environment(spec)
        Limits(**spec.limits).apply(spec.device, spec.isolation.get("level", 1))
        if spec.kind == "kernel":
            from .kernel import main
        elif spec.kind == "store":
            from .store import main
        else:
            from .task import main
        main(spec, channel)
        code = 0
        note_what_was_used()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in streams:  # not those of `sys`: learners' code may have put anything there
            try:
                stream.flush()
            except (OSError, ValueError):
                code = code or 74
        # Not sys.exit: torch's and gloo's own clean-up can abort or stall a rank whose work is done.
        os._exit(code)


def _leave_the_agent(parent_pid: int) -> None:
    """Own session (an interrupt of the notebook doesn't reach it), and no life after its parent."""
    os.setsid()
    if sys.platform == "linux":
        namespaces.die_with_parent(signal.SIGKILL)
        if os.getppid() != parent_pid:  # it ended before the line above
            os._exit(70)
        go_first_when_memory_runs_out()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _connect_output(output_fd: int) -> list[TextIO]:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    for descriptor in {null, output_fd} - {0, 1, 2}:
        os.close(descriptor)
    # New objects: the inherited ones still think that they write to the agent's log file.
    # Whole lines at once, and never a crash over a character.
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = open(number, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    return [sys.stdout, sys.stderr]


def _take_environment(spec: RankSpec) -> None:
    wanted = spec.env | spec.environment()
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(dict(wanted.items() - os.environ.items()))
    clock.set_ahead_ns(spec.on_node.ahead_ns)
    os.chdir(spec.cwd)
    sys.path[:] = spec.sys_path
    sys.argv = ["dtlearn-rank"]
    tempfile.tempdir = None  # what the agent found out of its own environment
    import torch

    from .task import random_as_new

    random_as_new()
    torch.set_num_threads(1)
    faulthandler.enable(file=2)
    stacks = os.open(stack_file(spec.run_dir, spec.rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=True)
