"""A copy of what is to be saved, in the host's memory, and a thread that writes it while training goes on.

    save            training waits for                       while it goes on
    synchronous     copy, write, fsync, all ranks            -
    asynchronous    copy (and an earlier save, if any)       write, fsync, all ranks

The copy must be complete before the next `optimizer.step`, which changes parameters in place. That is all that must.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .pieces import Shards


@dataclass
class SaveTimes:
    """How long a save took, in seconds.

    Attributes:
        step: updates made.
        waited: until an earlier save was done.
        staged: for the copy.
        written: for files, fsync and the other ranks; beside training, if it is asynchronous. 0 until it is done.
        stall: what training waited in all: the `save_stall` of this save.
        skipped: an earlier save was still going on, and nothing was saved.
        note: what could not be done after it was saved, such as to delete an older one.
    """

    step: int
    waited: float = 0.0
    staged: float = 0.0
    written: float = 0.0
    stall: float = 0.0
    skipped: bool = False
    note: str = ""


class Staging:
    """Keeps the copies' memory from save to save: pinned, if what is saved lies on a GPU.

    **Communication**: none. **Memory**: on the host, the bytes of one rank's shards, for good.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}

    def copy(self, shards: Shards) -> Shards:
        """The same shards on the host, which no later step changes. The copies of the save before are written over."""
        copies = {}
        for name, (piece, values) in shards.items():
            buffer = self._buffers.get(name)
            if buffer is None or (buffer.shape, buffer.dtype) != (values.shape, values.dtype):
                buffer = torch.empty(values.shape, dtype=values.dtype, pin_memory=values.is_cuda)
                self._buffers[name] = buffer
            copies[name] = (piece, buffer.copy_(values.detach(), non_blocking=True))
        if any(values.is_cuda for _, values in shards.values()):
            torch.cuda.current_stream().synchronize()  # only then are the copies complete
        return copies


class BackgroundTask:
    """Runs one function at a time in a thread; what it raises is raised by the next `finish`."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def is_running(self) -> bool:
        """Whether the last function has not ended."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, function: Callable[[], None]) -> None:
        """Begin; the one before must be finished."""
        assert self._thread is None

        def run() -> None:
            try:
                function()
            except BaseException as error:  # whatever it is, training must hear of it
                self._error = error

        self._thread = threading.Thread(target=run, name="checkpoint", daemon=True)
        self._thread.start()

    def finish(self) -> float:
        """Wait until the function has ended, and raise what it raised. Returns the seconds that it took to wait."""
        start = time.perf_counter()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return time.perf_counter() - start
