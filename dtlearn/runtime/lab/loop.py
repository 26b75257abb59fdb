"""A loop that waits for file descriptors and ZeroMQ sockets and calls who asked; other threads hand it work."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import zmq

READ, WRITE = zmq.POLLIN, zmq.POLLOUT
_T = TypeVar("_T")


class Loop:
    """Runs in one thread; `post`, `call` and `stop` may come from any other."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._handlers: dict[Any, Callable[[int], None]] = {}
        self._timers: list[tuple[float, Callable[[], None], list[float]]] = []
        self._tasks: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self.thread: int | None = None
        self.watch(self._wake_read, READ, lambda _: self._drain())

    def watch(self, what: Any, flags: int, handler: Callable[[int], None]) -> None:
        """Call `handler(events)` whenever `what`, a descriptor or ZeroMQ socket, is ready; `flags` 0: no more."""
        if flags:
            self._poller.register(what, flags)
            self._handlers[what] = handler
        elif what in self._handlers:
            self._poller.unregister(what)
            del self._handlers[what]

    def every(self, seconds: float, work: Callable[[], None]) -> None:
        """Call `work` again and again."""
        self._timers.append((seconds, work, [time.monotonic() + seconds]))

    def post(self, work: Callable[[], None]) -> None:
        """Have `work` done in the loop's thread, soon."""
        self._tasks.append(work)
        with contextlib.suppress(OSError):  # full: it will wake; closed: nobody is there any more
            os.write(self._wake_write, b"!")

    def call(self, work: Callable[[], _T]) -> _T:
        """Do `work` in the loop's thread and wait for what it returns."""
        if threading.get_ident() == self.thread:
            return work()
        result: Future[_T] = Future()

        def run() -> None:
            try:
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)

        self.post(run)
        return result.result(30)

    def stop(self) -> None:
        """End `run` after what is being done."""
        self.post(lambda: setattr(self, "_stopping", True))

    def run(self) -> None:
        """Serve until `stop`."""
        self.thread = threading.get_ident()
        while not self._stopping:
            self.step()

    def step(self) -> None:
        """Wait for something to happen, and handle it."""
        now = time.monotonic()
        until = min((due[0] for _, _, due in self._timers), default=now + 1.0)
        for what, events in self._poller.poll(max(0, int((until - now) * 1000) + 1)):
            if handler := self._handlers.get(what):  # an earlier one in this round may have ended it
                handler(events)
        now = time.monotonic()
        for seconds, work, due in self._timers:
            if now >= due[0]:
                due[0] = now + seconds
                work()

    def close(self) -> None:
        for end in (self._wake_read, self._wake_write):
            os.close(end)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        while self._tasks:
            self._tasks.popleft()()
