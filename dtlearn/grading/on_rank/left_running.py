"""What a rank notes of an answer beside its value: the memory that it used, and what it left running.

Runs on the ranks.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path


def left_running(before: set[threading.Thread]) -> list[str]:
    """Threads that were not there before, and processes that this one has started, in words."""
    threads = [t for t in threading.enumerate() if t not in before and t.is_alive()]
    return [f"the thread {t.name!r}" for t in threads] + [f"the process {name!r}" for name in _children()]


def _children() -> list[str]:
    names = []
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in listing.read_text().split():
                command = _command(pid)
                # Python's own bookkeeper of shared memory stays until this process ends.
                if command and "multiprocessing.resource_tracker" not in command:
                    names.append(command)
    return names


def _command(pid: str) -> str:
    """A process's program and arguments, shortened; "" for one that has ended."""
    for _ in range(20):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if any(words):
                return " ".join([Path(words[0]).name, *words[1:]]).strip()[:80]
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return ""
        except OSError:
            return ""
        time.sleep(0.005)  # it is about to become another program, and has no arguments just now
    return "?"
