"""The contract between the head and a rank: what it is told, and the files it writes."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..device import DEVICE_VARIABLE
from . import flight_recorder
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
        seat: its place among several hosts, the fields of a `spec.Seat`; None: all ranks are on this machine.
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
        flight_recorder.VARIABLE: spec.env.get(flight_recorder.VARIABLE, flight_recorder.ENTRIES),
    }


def call_log_file(run_dir: Path, rank: int, cell: int = 0) -> Path:
    """Where a rank writes its calls; the n-th cell of a world writes to a file of its own."""
    return run_dir / f"calls-{rank}-{cell}.jsonl"


def link_file(run_dir: Path) -> Path:
    """What the ranks of an emulated link share."""
    return run_dir / "link"
