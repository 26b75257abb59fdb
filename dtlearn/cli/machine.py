"""Facts of this machine that the commands print: cores, load, memory. Each is asked for, not assumed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

GIB = 1 << 30
_CGROUP = Path("/sys/fs/cgroup")


def num_cores() -> int:
    """Cores that this process may use: its affinity, and the share that a container gives it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(_read(_CGROUP / "cpu.max"))
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


def memory() -> tuple[int, int] | None:
    """Memory of this machine, or of the container it runs in, in bytes: (all, free to use). None if not known."""
    total, free = _meminfo(_read(Path("/proc/meminfo")))
    if not total:
        with contextlib.suppress(ValueError, OSError, AttributeError):
            total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            free = total // 2  # macOS does not say; half is what a machine with a browser open has left
    if not total:
        return None
    with contextlib.suppress(ValueError):  # "max", or no such file: no limit
        limit, used = int(_read(_CGROUP / "memory.max")), int(_read(_CGROUP / "memory.current"))
        total, free = min(total, limit), min(free, max(0, limit - used))
    return total, free


def _meminfo(text: str) -> tuple[int, int]:
    values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in text.splitlines() if line.endswith("kB")}
    return values.get("MemTotal", 0), values.get("MemAvailable", 0)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
