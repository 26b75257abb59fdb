"""What one rank may use of the machine, and whether the machine has room for the ranks at all."""

import contextlib
import os
import resource
from dataclasses import dataclass

from ..errors import LaunchError
from .memory import GIB

MEMORY_VARIABLE = "DTLEARN_RANK_MEMORY"  # GiB that a rank may use; 0: as much as there is
RANK_MEMORY = GIB * 14 // 100  # measured: what a rank that trains a small model holds of its own
_LEAST = GIB  # of a rank's limit: torch alone has set aside 0.3 GiB when the rank begins


@dataclass(frozen=True)
class Limits:
    """What each rank may use. None: no limit.

    Attributes:
        memory: bytes of memory of its own (RLIMIT_DATA: heap and private mappings, touched or not; memory that
            processes share, such as batches from DataLoader workers, does not count). Not for ranks on a GPU, where
            the driver sets aside address space without end.
        cpu_seconds: processor time, which a rank that sleeps or waits does not use. Then it is ended by SIGXCPU.
        processes: processes and threads of the whole run. Needs isolation level 2: at the lower ones the system can
            only count all that the user runs. The superuser is held to 300 at the least, from Linux 6.14 on.
        file_size: bytes of the largest file that it may write.
        output: bytes of its output that are kept, half from the beginning and half from the end.
    """

    memory: int | None = None
    cpu_seconds: int | None = None
    processes: int | None = None
    file_size: int | None = None
    output: int = 1 << 19

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"Limits({name}=...) takes a whole number of 1 or more, or None; got {value!r}")

    def apply(self, device: str, level: int) -> None:
        """Hold this process, a rank, and all that it will start, to the limits. It cannot lift them again."""
        wanted = {
            resource.RLIMIT_CORE: 0,  # a dump of a rank is as large as its memory, and nobody reads it
            resource.RLIMIT_CPU: self.cpu_seconds,
            resource.RLIMIT_FSIZE: self.file_size,
            resource.RLIMIT_DATA: self.memory if device == "cpu" else None,
        }
        if level >= 2:
            wanted[resource.RLIMIT_NPROC] = self.processes
        for kind, value in wanted.items():
            if value is not None:
                most = resource.getrlimit(kind)[1]
                value = value if most == resource.RLIM_INFINITY else min(value, most)
                # One second more for the hard limit of processor time: at that one the system sends SIGKILL.
                hard = value + 1 if kind == resource.RLIMIT_CPU and most == resource.RLIM_INFINITY else value
                with contextlib.suppress(ValueError, OSError):  # macOS knows some of them by name only
                    resource.setrlimit(kind, (value, hard))


def default_limits(num_ranks: int, free: int | None) -> Limits:
    """The limits of ranks for which nothing else was asked: an equal share of the memory, at least 1 GiB.

    So ranks that all ask for too much get an error which can be explained, and the machine goes on. `free`: bytes of
    memory that are free now; None if not known. Raises ValueError if the variable DTLEARN_RANK_MEMORY is no number.
    """
    text = os.environ.get(MEMORY_VARIABLE, "").strip()
    if not text:
        return Limits() if free is None else Limits(memory=max(_LEAST, free * 9 // 10 // num_ranks))
    with contextlib.suppress(ValueError, OverflowError):
        if (memory := int(float(text) * GIB)) >= 0:
            return Limits(memory=memory or None)
    raise ValueError(
        f"the environment variable {MEMORY_VARIABLE} takes a number of GiB, or 0 for no limit; got {text!r}"
    )


def check_room(num_ranks: int, free: int | None) -> None:
    """Raise LaunchError, saying how many ranks fit: nothing is worse to learn with than a machine that swaps."""
    if free is None or num_ranks * RANK_MEMORY <= free:
        return
    fit = free // RANK_MEMORY
    advice = f"{fit} fit: start that many" if fit else "not even one fits"
    raise LaunchError(
        f"{num_ranks} ranks need about {num_ranks * RANK_MEMORY / GIB:.1f} GiB of memory to start, and "
        f"{free / GIB:.1f} GiB are free: {advice}, or close other programs and notebooks."
    )
