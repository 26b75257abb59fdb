"""Faults that are planted on purpose: what kills a rank, stops it, or makes it compute wrong.

Some end or stop the process that plants them, or the ranks' calls no longer fit together; the others change numbers,
and nothing fails.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

FATAL = ("kill", "hang", "stop", "memory", "cut")
WRONG_GRADIENT = ("nan", "flip_gradient", "scale_gradient")
WRONG_PARAMETER = ("flip_parameter",)
SKIPPED = "skip"
KINDS = (*FATAL, SKIPPED, *WRONG_GRADIENT, *WRONG_PARAMETER)
LASTING = ("scale_gradient",)  # a defect that stays; the others happen once
ROOM = 96 << 20  # bytes that a rank may still allocate when it runs out of memory
_BLOCK = 16 << 20  # bytes it asks for at a time


@dataclass(frozen=True)
class Plant:
    """A fault, and where it strikes.

    Attributes:
        kind: "kill" (SIGKILL), "hang" (the main thread sleeps for ever), "stop" (SIGSTOP), "memory" (a limit, and more
            is asked for), "cut" (the host's plug is pulled: whoever started the ranks does it), "skip" (the rank leaves
            a collective out), "nan" (a gradient holds NaN), "flip_gradient" (one bit, once), "scale_gradient" (by
            1.01, from then on), "flip_parameter" (one bit of the updated parameters, once).
        rank, step: on which rank, in which step, from 0.
        attempt: in which attempt; a restarted job is not hit again.

    Raises:
        ValueError: another kind, or a rank or step below 0.
    """

    kind: str
    rank: int
    step: int
    attempt: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.rank < 0 or self.step < 0:
            raise ValueError(
                f"a fault is one of {', '.join(KINDS)}, on a rank and in a step from 0; got {self.kind!r}, "
                f"rank {self.rank}, step {self.step}"
            )

    def strikes(self, rank: int, step: int, attempt: int) -> bool:
        """Whether it is time: at that step, or since then if the defect stays."""
        due = step >= self.step if self.kind in LASTING else step == self.step
        return due and rank == self.rank and attempt == self.attempt


def strike(kind: str, tell: Callable[[str, int | None], None], step: int | None) -> None:
    """End or stop this process as a fault of that kind does. `tell(kind, step)` is called just before."""
    if kind == "memory":
        limit_memory(ROOM)
    tell(kind, step)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "memory":
        fill_memory()
    elif kind == "cut":
        time.sleep(0.5)  # the plug is pulled from outside when the line above is read; then training goes on, alone
    else:
        while True:  # not one long sleep: a signal handler that returns would end that
            time.sleep(60)


def limit_memory(room: int) -> None:
    """Let this process allocate at most `room` bytes more; `RLIMIT_DATA` counts its private, writable memory."""
    status = Path("/proc/self/status").read_text()
    held = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData")) << 10
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (held + room, hard))


def fill_memory() -> None:
    """Allocate until there is no more. Raises RuntimeError, as torch does when memory cannot be had."""
    blocks = []
    while True:
        blocks.append(torch.zeros(_BLOCK, dtype=torch.uint8))


def spoil(kind: str, values: torch.Tensor) -> torch.Tensor:
    """A copy of the values, (n,) float64, changed as a defect of that kind changes them."""
    spoiled = values.clone()
    if kind == "nan":
        spoiled[0] = torch.nan
    elif kind == "scale_gradient":
        spoiled *= 1.01
    else:
        flip_bit(spoiled, len(spoiled) // 2, 51)  # the highest bit of the mantissa: a wrong number, but no wild one
    return spoiled


def flip_bit(values: torch.Tensor, index: int, bit: int) -> None:
    """Change one bit of one element of `values`, (n,) float64, in place. Bit 0 is the last one of the mantissa."""
    bits = values.view(torch.int64)
    bits[index] ^= 1 << bit
