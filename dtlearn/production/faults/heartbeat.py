"""Heartbeats: each rank says again and again that it lives, and how far it is; a monitor says who has fallen silent.

A rank's thread sets one key of a TCPStore. A thread that beats proves that the process runs, and nothing more: it goes
on while the main thread hangs. So a beat holds the step that the main thread has reached, and the monitor has two
limits, one for silence and one for a step that does not end.

The monitor measures on its own clock, from when it last saw a change: clocks of machines differ.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

_DONE = -1  # the step of a rank that needs no more watching
_PATIENCE = timedelta(seconds=5)


def host_store() -> Any:
    """A TCPStore that this process serves on a free port (`.port`), for heartbeats. It outlives ranks that die."""
    return dist.TCPStore("127.0.0.1", 0, None, True, _PATIENCE, wait_for_workers=False)


class Heartbeat:
    """Beats for this rank in a thread of its own, until `stop`, or for as long as the process runs.

    Args:
        address: host and port of the store.
        name: of this rank, for the monitor, such as "0/2" (attempt, rank).
        every: seconds between beats.
        on_stall: called in the thread, once, when the step has not changed for `stall` seconds.
        stall: seconds.
    """

    def __init__(
        self,
        address: tuple[str, int],
        name: str,
        every: float,
        on_stall: Callable[[], None] | None = None,
        stall: float = 1.0,
    ) -> None:
        self._store = dist.TCPStore(*address, None, False, _PATIENCE, wait_for_workers=False)
        self._key, self._every, self._on_stall, self._stall = f"beat/{name}", every, on_stall, stall
        self._step, self._since = 0, time.monotonic()
        self._number, self._ended = 0, threading.Event()
        self._beat()  # here, not in the thread: a rank that is stopped in its first step has been heard
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat")
        self._thread.start()

    def reach(self, step: int) -> None:
        """Say which step the main thread works on, from 1."""
        self._step, self._since = step, time.monotonic()

    def stop(self) -> None:
        """Beat a last time, as done."""
        self._step = _DONE
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(RuntimeError):  # the store is gone: there is nobody to hear it
            while not self._ended.wait(self._every):
                self._beat()
                stalled = self._step > 0 and time.monotonic() - self._since > self._stall
                if stalled and self._on_stall is not None:
                    self._on_stall()
                    self._on_stall = None
            self._beat()

    def _beat(self) -> None:
        self._number += 1
        self._store.set(self._key, json.dumps([self._number, self._step, os.getpid()]))


class HeartbeatMonitor:
    """Watches the heartbeats of a job in a thread of its own, from the first beat of each rank on.

    In each attempt, and for each reason, the first rank that is late is named: when one is gone, the launcher soon ends
    the others, and they fall silent too.

    Args:
        store: as `host_store` gave it.
        ranks, attempts: how many ranks there may be, and how often they are started.
        silence: seconds without a beat, after which a rank is given up for dead.
        stall: seconds on one step, after which a rank is said to hang.
        on_late: `on_late(attempt, rank, by)`, in the thread; `by`: "heartbeat" or "progress". The rank is None if it is
            not the only one in its step: who hangs and who waits for it look the same from here.
        every: seconds between two looks.
    """

    def __init__(
        self,
        store: Any,
        ranks: int,
        attempts: int,
        silence: float,
        stall: float,
        on_late: Callable[[int, int | None, str], None],
        every: float = 0.05,
    ) -> None:
        self._store, self._ranks, self._attempts, self._every = store, ranks, attempts, every
        self._silence, self._stall, self._on_late = silence, stall, on_late
        self._beats: dict[tuple[int, int], tuple[int, int, int]] = {}  # (number of the beat, step, process id)
        self._changed: dict[tuple[int, int, str], float] = {}  # when the number, and the step, last changed
        self._told: set[tuple[int, str]] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat-monitor")
        self._thread.start()

    def pid(self, attempt: int, rank: int) -> int | None:
        """The process id of a rank; None if it has not been heard."""
        beat = self._beats.get((attempt, rank))
        return beat and beat[2]

    def stop(self) -> None:
        """Watch no more."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(RuntimeError):  # the store is gone
            while not self._ended.wait(self._every):
                for attempt in range(self._attempts):
                    self._look(attempt)

    def _look(self, attempt: int) -> None:
        now = time.monotonic()
        for rank in range(self._ranks):
            key = f"beat/{attempt}/{rank}"
            if not self._store.check([key]):
                continue  # not there yet: how long a rank may take to start is the launcher's business
            beat = tuple(json.loads(self._store.get(key)))
            before = self._beats.get((attempt, rank), (0, 0, 0))
            if beat[0] != before[0]:
                self._changed[attempt, rank, "heartbeat"] = now
            if beat[1] != before[1] or beat[1] == 0:  # step 0: it has not begun
                self._changed[attempt, rank, "progress"] = now
            self._beats[attempt, rank] = beat
        steps = {rank: step for (a, rank), (_, step, _) in self._beats.items() if a == attempt and step != _DONE}
        quiet = {rank: now - self._changed[attempt, rank, "heartbeat"] for rank in steps}
        silent = [rank for rank in steps if quiet[rank] > self._silence]
        if silent:
            self._tell(attempt, max(silent, key=quiet.__getitem__), "heartbeat")
        stalled = [
            rank
            for rank in steps
            if now - self._changed[attempt, rank, "progress"] > self._stall and quiet[rank] < self._silence / 2
        ]
        if stalled:
            behind = [rank for rank, step in steps.items() if step == min(steps.values())]
            self._tell(attempt, behind[0] if len(behind) == 1 < len(steps) else None, "progress")

    def _tell(self, attempt: int, rank: int | None, by: str) -> None:
        if (attempt, by) not in self._told:
            self._told.add((attempt, by))
            self._on_late(attempt, rank, by)
