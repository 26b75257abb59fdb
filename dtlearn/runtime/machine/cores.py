"""How many cores this process may use, and how busy the machine is. Each is asked for, not assumed."""

import contextlib
import os

from .memory import CGROUP, read


def num_cores() -> int:
    """Cores that this process may use: its affinity, and the share that a container gives it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(read(CGROUP / "cpu.max"))
    return max(1, min(cores, int(quota))) if quota else cores


def cpu_quota(text: str) -> float | None:
    """Cores granted by a cgroup's `cpu.max` ("150000 100000" -> 1.5); None: no limit, or not known."""
    with contextlib.suppress(ValueError, ZeroDivisionError):
        quota, period = text.split()
        return int(quota) / int(period)
    return None


def load_line() -> str:
    """One line on how busy this machine is, to print under figures measured on it."""
    cores = num_cores()
    busy = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{cores} core{'s' * (cores > 1)}{busy}"
