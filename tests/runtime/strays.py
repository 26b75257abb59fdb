"""Processes that try to get away from their rank, for the tests that nothing gets away."""

import contextlib
import time
from pathlib import Path


def lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def all_gone(pids, seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while (left := any(map(lives, pids))) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not left


# A daemon as daemons are made: a second fork, a session of its own, a new program with an empty environment.
# It holds none of the rank's descriptors. Prints its number.
DAEMON = """
import os, sys
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(w, str(os.getpid()).encode())
        os.closerange(0, 256)
        os.execve("/bin/sleep", ["sleep", "300"], {})
    os._exit(0)
os.wait()
daemon = int(os.read(r, 100))
"""


def start_daemon() -> int:
    """Leave a daemon behind; its number."""
    names: dict[str, int] = {}
    exec(DAEMON, names)
    return names["daemon"]
