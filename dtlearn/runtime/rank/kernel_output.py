"""What a rank of a notebook prints, on its way to the head: capped, and complete when its cell ends."""

import array
import fcntl
import os
import select
import termios
import threading
import time
from typing import Any

from ipykernel.iostream import OutStream

from ..machine.patience import TO_DRAIN, Patience
from ..output import OutputCap

_PIPE_BYTES = 65_536


class PrintedText(OutStream):
    """A rank's stdout or stderr, native output included.

    Native code and child processes write to a pipe, which a thread reads. ipykernel's own `flush` does not wait for
    that thread: what a child has printed could miss the end of its cell, and be dropped. This one waits.
    """

    cap: OutputCap

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._reading = threading.Lock()
        self._passed_on = 0
        self._unflushed = False  # whether something was written since the last flush began
        super().__init__(*args, **kwargs)

    def write(self, string: str) -> int:
        if isinstance(string, str):
            self.cap.pass_on(string, super().write)
        else:
            super().write(string)  # it says what is wrong
        self._unflushed = True  # behind the writing: a flush on another thread must not take it for done
        return len(string)

    def flush(self) -> None:
        if self._fid is not None and os.getpid() == self._master_pid:
            self._drain()
        # ipykernel flushes four times a cell, and each time waits for its thread.
        if self._unflushed:
            self._unflushed = False
            super().flush()

    def _drain(self) -> None:
        """Wait until all that is in the pipe now has been passed on; not for what is written from now on."""
        if threading.current_thread() is self.watch_fd_thread:
            return
        with self._reading:
            there = array.array("i", [0])
            fcntl.ioctl(self._fid, termios.FIONREAD, there)
            wanted = self._passed_on + there[0]
        if self._passed_on >= wanted:
            return
        patience = Patience(TO_DRAIN)
        while self._passed_on < wanted and not patience.over() and self.watch_fd_thread.is_alive():
            time.sleep(0.0005)

    def _watch_pipe_fd(self) -> None:
        """The thread's work, as ipykernel does it, with a count of what was passed on."""
        ready = select.poll()
        ready.register(self._fid, select.POLLIN)
        while self._should_watch:
            ready.poll()
            with self._reading:
                data = os.read(self._fid, _PIPE_BYTES)
                self.write(data.decode(errors="replace"))
                self._passed_on += len(data)
            os.write(self._original_stdstream_copy, data)
