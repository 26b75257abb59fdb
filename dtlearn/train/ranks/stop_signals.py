"""Ctrl-C and SIGTERM end a run at the next step, on all ranks at once.

A signal may reach one rank only, or each at another moment. So a handler only makes a note; the notes travel with the
loss, in an all-reduce that every step makes anyway, and after it all ranks know the same.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SECONDS_OF_ONE_STOP = 2.0  # one Ctrl-C may come twice: from the terminal, and from a launcher that passes it on


class StopSignals:
    """Counts the signals that ask this rank to stop, in the `with` block.

    A second Ctrl-C, more than two seconds after the first, ends the process at once: there may be no next step.
    Signals can be handled in the main thread only; elsewhere this does nothing.
    """

    def __init__(self) -> None:
        self.seen = [0, 0]  # how many, by SIGNALS
        self._first = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if number == signal.SIGINT and self.seen[0] and now - self._first > SECONDS_OF_ONE_STOP:
            raise KeyboardInterrupt
        if not any(self.seen):
            self._first = now
        self.seen[SIGNALS.index(signal.Signals(number))] += 1

    def as_list(self) -> list[float]:
        """What goes into the all-reduce: (2,) counts."""
        return [float(count) for count in self.seen]


def signal_of(counts: list[float]) -> int:
    """The signal that some rank has seen, from the counts summed over ranks; 0 if none."""
    return next((int(number) for number, count in zip(SIGNALS, counts, strict=True) if count), 0)


def ignore_stop_signals() -> None:
    """For the workers of a DataLoader: Ctrl-C and torchrun reach them too, but their rank still needs them."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def held_back() -> Iterator[None]:
    """Signals wait until the end of this block, in which workers are started.

    A worker inherits that. Otherwise one that came before `ignore_stop_signals` would end it, and with it the rank.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
