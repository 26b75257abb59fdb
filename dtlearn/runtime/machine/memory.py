"""How much memory there is, how much is free, and who has to go first when there is none."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

GIB = 1 << 30
_CGROUP = Path("/sys/fs/cgroup")


def memory() -> tuple[int, int] | None:
    """Memory of this machine, or of the container it runs in, in bytes: (all, free to use). None if not known."""
    total, free = _meminfo(_read(Path("/proc/meminfo")))
    if not total:
        with contextlib.suppress(ValueError, OSError, AttributeError):
            total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            free = total // 2  # macOS does not say; half is what a machine with a browser open has left
    if not total:
        return None
    for folder, most, used in (
        (_CGROUP, "memory.max", "memory.current"),
        (_CGROUP / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),  # version 1
    ):
        with contextlib.suppress(ValueError):  # "max", or no such file: no limit
            limit, taken = int(_read(folder / most)), int(_read(folder / used))
            total, free = min(total, limit), min(free, max(0, limit - taken + _cached(folder)))
    return total, free


def free_memory() -> int | None:
    """Bytes of memory that are free to use; None if not known."""
    found = memory()
    return found[1] if found else None


def oom_kills() -> int:
    """How many processes this machine has ended so far because memory ran out; -1 if it does not say."""
    for line in _read(Path("/proc/vmstat")).splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return -1


def go_first_when_memory_runs_out() -> None:
    """Let the system end this process before the notebook, the browser and whatever else has learners' work in it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")


def _cached(folder: Path) -> int:
    """Bytes of a container's memory that only hold copies of files: the system drops them when others need it."""
    lines = [line.split() for line in _read(folder / "memory.stat").splitlines()]
    values = {name: int(number) for name, number in lines}
    return sum(values.get(f"total_{name}", values.get(name, 0)) for name in ("inactive_file", "active_file"))


def _meminfo(text: str) -> tuple[int, int]:
    values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in text.splitlines() if line.endswith("kB")}
    return values.get("MemTotal", 0), values.get("MemAvailable", 0)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
