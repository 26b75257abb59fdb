"""Runs on the ranks: what an answer left running when it had returned."""

import os
import threading
import time
from pathlib import Path

import psutil

from ...runtime.machine.patience import TO_SAY_THE_SAME, Patience
from ...runtime.machine.processes import children


def left_running(before: set[threading.Thread]) -> list[str]:
    """Threads that were not there before, and processes that this one has started, in words."""
    patience = Patience(TO_SAY_THE_SAME, children(os.getpid()))  # to end: a DataLoader's workers have been told to
    while (left := _running(before)) and not patience.over():
        time.sleep(0.01)
    return left


def _running(before: set[threading.Thread]) -> list[str]:
    threads = [t for t in threading.enumerate() if t not in before and t.is_alive()]
    commands = [command for pid in children(os.getpid()) if (command := _command(pid))]
    # Python's own bookkeeper of shared memory stays until this process ends.
    processes = [command for command in commands if "multiprocessing.resource_tracker" not in command]
    return [f"the thread {t.name!r}" for t in threads] + [f"the process {command!r}" for command in processes]


def _command(pid: int) -> str:
    """A process's program and arguments, shortened; "" for one that has ended."""
    for _ in range(20):
        try:
            if any(words := psutil.Process(pid).cmdline()):
                return " ".join([Path(words[0]).name, *words[1:]]).strip()[:80]
        except psutil.Error:
            return ""
        time.sleep(0.005)  # it is about to become another program, and has no arguments just now
    return "?"
