"""How well ranks are shut in: the levels, which of them this machine allows, and what a run asks for."""

import functools
import json
import subprocess
import sys
from dataclasses import dataclass

from . import namespaces

MEANING = {
    0: "ranks end with the program that started them; what they start themselves may stay",
    1: "nothing that a rank starts outlives its run, but it has your rights: grade only code that you trust",
    2: "a run can have processes, network and temporary files of its own; others are read-only or not to be seen",
}
NOT_STOPPED = {
    0: "a process that leaves its rank's group; anything that you may do yourself",
    1: "changing your files; ending your processes; the network",
    2: "reading the system's own files, such as /etc; faults of its kernel, which is shared",
}


@dataclass(frozen=True)
class Isolation:
    """How a run is to be shut in.

    Attributes:
        level: 0, 1 or 2; `MEANING` says what each means, `NOT_STOPPED` what it does not stop. Ranks behind notebook
            cells have 0 or 1.
        writable: at level 2: folders that the ranks may change, besides the run's own and those for temporary files.
        hidden: at level 2: files and folders that they find empty.
        shown: at level 2: all that they see outside the system's own folders, also where it lies in a hidden one. None:
            everything that is not hidden.
    """

    level: int = 1
    writable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.level not in MEANING:
            raise ValueError(f"the isolation level is 0, 1 or 2; got {self.level!r}")
        if self.level < 2 and (self.writable or self.hidden or self.shown is not None):
            raise ValueError(f"isolation level {self.level} cannot hide or protect files; ask for level 2")


@dataclass(frozen=True)
class Allowed:
    """The highest level that this machine allows."""

    level: int
    limit: str = ""  # why it is not higher

    def __str__(self) -> str:
        limit = f" (not higher: {self.limit})" if self.limit else ""
        return f"level {self.level} of 2{limit}: {MEANING[self.level]}; not stopped: {NOT_STOPPED[self.level]}"


@functools.cache
def probe() -> Allowed:
    """What this machine allows: tried out in a process of its own, never assumed. The answer is kept."""
    try:
        command = [sys.executable, "-P", "-S", namespaces.__file__]
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
        level, limit = json.loads(done.stdout.splitlines()[-1])
        return Allowed(level, limit)
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError) as error:
        return Allowed(0, f"the trial failed ({type(error).__name__})")


def best(highest: int = 2) -> Isolation:
    """The highest level that this machine allows, up to `highest`."""
    return Isolation(min(highest, probe().level))


def refused(why: str) -> str:
    """What is said where level 2 was asked for and cannot be had."""
    return (
        f"isolation level 2 is not allowed on this machine: {why}. Docker allows it with "
        "`--security-opt seccomp=unconfined --security-opt apparmor=unconfined`; Ubuntu 24.04 and later with "
        "`sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`. `dtlearn doctor` says which level works."
    )
