"""From a freshly forked process to a rank: its own session, environment, output and random state.

Runs on the ranks, before anything of the learner's.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from . import clock, flight, namespaces
from .device import DEVICE_VARIABLE
from .limits import Limits
from .memory import go_first_when_memory_runs_out
from .seat import Seat

LOST_LINE = 71  # exit code of a rank that could not say that it finished
STACK_SIGNAL = signal.SIGUSR2  # asks a rank for its stack; answered in C, so also by a rank that holds the GIL


@dataclass(frozen=True)
class RankSpec:
    """Everything that a rank is told when it starts. Plain values only: it travels as JSON.

    Attributes:
        kind: "run" (one function), "kernel" (notebook cells) or "store" (no rank: a lab's store).
        rank, world_size: in the world of this run; local and global are the same on one machine.
        backend, device: see `device.Placement`.
        run_dir: private directory of this run: store, call logs, stack dumps.
        env, cwd, sys_path: those of the process that asked for the ranks.
        group_timeout: seconds, for the process group.
        limits, isolation: fields of `Limits` and `Isolation`.
        seat: its place among several hosts, the fields of a `seat.Seat`; None: all ranks are on this machine.
    """

    kind: str
    rank: int
    world_size: int
    backend: str
    device: str
    run_dir: str
    env: dict[str, str]
    cwd: str
    sys_path: list[str]
    group_timeout: float
    limits: dict[str, Any] = field(default_factory=dict)
    isolation: dict[str, Any] = field(default_factory=dict)
    seat: dict[str, Any] | None = None

    def stack_file(self) -> Path:
        """Where this rank writes its stack when it gets `STACK_SIGNAL`."""
        return stack_file(self.run_dir, self.rank)


def stack_file(run_dir: str | Path, rank: int) -> Path:
    return Path(run_dir) / f"stack-{rank}.txt"


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
            from . import rank_kernel

            rank_kernel.main(spec, channel)
        elif spec.kind == "store":
            from . import rank_store

            rank_store.main(spec, channel)
        else:
            from . import rank_run

            rank_run.main(spec, channel)
        code = 0
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


def end_if_forked(rank_pid: int, code: int = 0) -> None:
    """End this process if it is not the rank but a copy that learners' code forked, and that came back from it.

    Such a copy must not speak on the rank's line, nor run what comes next a second time.
    """
    if os.getpid() != rank_pid:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


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
    os.environ.clear()
    os.environ.update(spec.env)
    os.environ.update(rank_environment(spec))
    clock.set_ahead_ns(spec.seat["ahead_ns"] if spec.seat else 0)
    os.chdir(spec.cwd)
    sys.path[:] = spec.sys_path
    sys.argv = ["dtlearn-rank"]
    tempfile.tempdir = None  # what the agent found out of its own environment
    # A process that was started, not forked, would have seeds of its own for these. (torch's seed is a constant.)
    import random

    import numpy
    import torch

    random.seed()
    numpy.random.seed()
    torch.set_num_threads(1)
    faulthandler.enable(file=2)
    stacks = open(spec.stack_file(), "w")  # noqa: SIM115 - must stay open for as long as the process lives
    faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=True)


def rank_environment(spec: RankSpec) -> dict[str, str]:
    """What `torchrun` would set, one thread, and the loopback interface unless the user chose another."""
    if spec.seat is not None:
        return Seat(**spec.seat).environment(spec.rank, spec.world_size, spec.device, spec.env)
    rank, size = str(spec.rank), str(spec.world_size)
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "GROUP_RANK": "0",
        "ROLE_RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": spec.env.get("GLOO_SOCKET_IFNAME", loopback),
        DEVICE_VARIABLE: spec.device,
        flight.VARIABLE: spec.env.get(flight.VARIABLE, flight.ENTRIES),
    }
