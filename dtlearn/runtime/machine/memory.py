"""How much memory there is, how much is free, and who has to go first when there is none."""

import contextlib
import ctypes
import sys
from pathlib import Path

import psutil

GIB = 1 << 30
CGROUP = Path("/sys/fs/cgroup")
_MADV_COLLAPSE = 25


def memory() -> tuple[int, int] | None:
    """Memory of this machine, or of the container it runs in, in bytes: (all, free to use). None if not known."""
    try:
        whole = psutil.virtual_memory()
    except (OSError, RuntimeError, psutil.Error):
        return None
    total, free = whole.total, whole.available
    for folder, most, used in (
        (CGROUP, "memory.max", "memory.current"),
        (CGROUP / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),  # version 1
    ):
        with contextlib.suppress(ValueError):  # "max", or no such file: no limit
            limit, taken = int(read(folder / most)), int(read(folder / used))
            total, free = min(total, limit), min(free, max(0, limit - taken + _cached(folder)))
    return total, free


def free_memory() -> int | None:
    """Bytes of memory that are free to use; None if not known."""
    total_and_free = memory()
    return total_and_free and total_and_free[1]


def oom_kills() -> int:
    """How many processes this machine has ended so far because memory ran out; -1 if it does not say."""
    for line in read(Path("/proc/vmstat")).splitlines():
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
    lines = [line.split() for line in read(folder / "memory.stat").splitlines()]
    values = {name: int(number) for name, number in lines}
    return sum(values.get(f"total_{name}", values.get(name, 0)) for name in ("inactive_file", "active_file"))


def read(file: Path) -> str:
    """The text of one of the system's files; "" if there is none."""
    with contextlib.suppress(OSError):
        return file.read_text()
    return ""


def use_huge_pages() -> None:
    """Put this process's memory into huge pages, where Linux can (6.1).

    A fork copies the table of pages: with torch loaded 5 ms of processor time instead of 15 and more. What is written
    to after the fork is copied as ever, a small page at a time.
    """
    with contextlib.suppress(OSError, AttributeError):
        madvise = ctypes.CDLL(None).madvise
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, access, _, _, file, *_ = line.split()
            if access == "rw-p" and file == "0":
                begin, end = (int(address, 16) for address in span.split("-"))
                madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_COLLAPSE)
