"""A file that lines are added to, read by others while it grows."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path


class LogFile:
    """A file of lines. One that cannot be written is its last: what is there stays whole, and `fault` says why.

    Args:
        path: where it is; it is made by `open`, or with the first line.
        on_fault: called once, with the reason, when a line cannot be written.
    """

    def __init__(self, path: Path, on_fault: Callable[[str], None] = lambda reason: None) -> None:
        self.fault = ""
        self._path, self._on_fault = path, on_fault
        self._descriptor = -1

    def open(self) -> None:
        """Make the file, empty."""
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        except OSError as error:
            self._fail(error)
            return
        if self._descriptor < 0:
            self._descriptor = descriptor
        else:
            # The old number stays: a thread that is about to write to it must not hit whatever file got it next.
            os.dup2(descriptor, self._descriptor, inheritable=False)
            os.close(descriptor)

    def write(self, line: str) -> None:
        """Add a line, in one piece. A full disk must not break the learner's run, so this never raises OSError."""
        if self.fault:
            return
        if self._descriptor < 0:
            self.open()
        try:
            data = line.encode()
            if os.write(self._descriptor, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._fail(error)

    def move(self, path: Path) -> None:
        """Go on in a new file; the old one is deleted."""
        old, self._path, self.fault = self._path, path, ""
        if self._descriptor >= 0:
            self.open()
        with contextlib.suppress(OSError):
            old.unlink()

    def _fail(self, error: OSError) -> None:
        if not self.fault:
            self.fault = error.strerror or str(error)
            self._on_fault(self.fault)
