"""Waiting until an instant, without taking the cores from ranks that compute."""

import heapq
import itertools
import sys
import threading
import time
import traceback
from collections.abc import Callable

from ..machine.namespaces import set_timer_slack

_SLICE = 0.02  # seconds: how long a sleep goes on before it looks whether it was called off
_SPIN = 60_000  # ns before the end that are not slept: waking up takes about as long


def sleep_until(instant: int, called_off: threading.Event) -> None:
    """Sleep until `time.monotonic_ns()` is `instant`, or until the sleep is called off."""
    while (left := instant - time.monotonic_ns()) > 0 and not called_off.is_set():
        time.sleep(min((left - _SPIN) / 1e9, _SLICE) if left > _SPIN else 0)


def wake_on_time() -> None:
    """Ask Linux to wake this thread when its sleep ends; by default that may be 50 us later."""
    set_timer_slack(1000)


class Timer:
    """Calls functions at given instants, on threads of its own that start with the first of them.

    One thread at a time watches the clock. Before it calls a function another one takes over: what waits for a
    future may itself wait for the next (PowerSGD's hook does), and that one must still come.
    """

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._watch = threading.Lock()
        self._spare = 0  # threads that could watch the clock, and the one that does
        self._hurried = threading.Event()  # never set: what is nearly due comes in time

    def at(self, instant: int, function: Callable[[], None]) -> None:
        """Call `function` at that `time.monotonic_ns()`, or at once if it has passed."""
        with self._changed:
            heapq.heappush(self._due, (instant, next(self._order), function))
            if not self._spare:
                # A rank whose main thread runs Python must let the timer in on time; by default it may take 5 ms.
                sys.setswitchinterval(min(sys.getswitchinterval(), 5e-4))
                self._start()
            self._changed.notify()

    def hurry(self) -> None:
        """Call everything that is due later now."""
        with self._changed:
            self._due = [(0, order, function) for _, order, function in self._due]
            heapq.heapify(self._due)
            self._changed.notify()

    def _start(self) -> None:
        self._spare += 1
        threading.Thread(target=self._run, name="emulated link", daemon=True).start()

    def _run(self) -> None:
        wake_on_time()
        while True:
            with self._watch:
                instant, function = self._next()
                sleep_until(instant, self._hurried)
                with self._changed:
                    self._spare -= 1
                    if not self._spare:
                        self._start()
            try:
                function()
            except Exception:  # such as a hook of the learner's: everything else must still come
                traceback.print_exc()
            with self._changed:
                self._spare += 1

    def _next(self) -> tuple[int, Callable[[], None]]:
        """Wait until a function is nearly due."""
        with self._changed:
            while True:
                left = self._due[0][0] - time.monotonic_ns() if self._due else None
                if left is not None and left <= _SPIN:
                    instant, _, function = heapq.heappop(self._due)
                    return instant, function
                self._changed.wait(None if left is None else (left - _SPIN) / 1e9)
