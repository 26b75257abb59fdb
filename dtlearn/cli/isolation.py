"""How well this machine can shut in what ranks do: tried out in a process of its own, never assumed.

Run as a script it tries, and prints a level with the reason why it is not higher. Only the standard library, and
nothing of dtlearn: it must be small and on one thread, as the kernel demands for new namespaces.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass

MEANING = {
    0: "ranks end with the program that started them; what they start themselves may stay",
    1: "nothing that a rank starts outlives it, but it runs with your rights: grade only code that you trust",
    2: "a run can have processes and a network of its own, as grading a class needs",
}
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 2, 36
_NEW_USER, _NEW_PID, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_SIOCSIFFLAGS, _UP = 0x8914, 1


@dataclass(frozen=True)
class Isolation:
    """What was found.

    Attributes:
        level: 0, 1 or 2; `MEANING` says what each means.
        limit: why it is not higher; "" for level 2.
    """

    level: int
    limit: str = ""


def probe(timeout: float = 5.0) -> Isolation:
    """Try it in a new process."""
    try:
        command = [sys.executable, "-P", "-S", __file__]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        return Isolation(**json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError) as error:
        return Isolation(0, f"the trial failed ({type(error).__name__})")


def try_here() -> Isolation:
    """Try it in this process, which is changed by it."""
    if sys.platform != "linux":
        return Isolation(0, f"{sys.platform} cannot tie the life of a process to its parent's")
    libc = ctypes.CDLL(None, use_errno=True)
    signal_number = ctypes.c_int()
    if (
        libc.prctl(_PR_SET_PDEATHSIG, 9)
        or libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(signal_number))
        or libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        or signal_number.value != 9
    ):
        return Isolation(0, "prctl is forbidden here")
    limit = _try_namespaces(libc)
    return Isolation(1, limit) if limit else Isolation(2)


def _try_namespaces(libc: ctypes.CDLL) -> str:
    """Enter new user, pid and network namespaces and use them. Returns why that failed, or ""."""
    user, group = os.getuid(), os.getgid()
    try:
        _check(libc.unshare(_NEW_USER), "user namespaces")
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        # Some systems grant the first step, but no rights in it: only these show whether it is of use.
        _check(libc.unshare(_NEW_PID | _NEW_NET), "pid and network namespaces")
        with socket.socket() as control:
            import fcntl

            fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP))
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(0 if os.getpid() == 1 and _loopback_answers() else 1)
            finally:  # also when it raises: only the parent goes on from here
                os._exit(1)
        return "" if os.waitpid(pid, 0)[1] == 0 else "a process in new namespaces cannot use its own network"
    except OSError as error:
        what = error.filename or "their network"
        return f"{what} refused: {os.strerror(error.errno or 0)}"


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _loopback_answers() -> bool:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=1).close()
    return True


if __name__ == "__main__":
    print(json.dumps(vars(try_here())))
