"""The same cells on ipyparallel's engines, a rival of our ranks, where it is installed."""

import contextlib
import importlib.util
import logging
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from ...runtime.errors import DtlearnError
from ...runtime.machine.processes import descendants

NAME, INSTALL = "ipyparallel", "pip install ipyparallel: then its engines run the same cells, in turn with ours."
_PATIENCE = 60.0  # seconds for the engines to come, and for each cell
_JOIN = """
import torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
"""


class EnginesError(DtlearnError):
    """The engines did not come, or did not go on: one line that says so."""


def installed() -> bool:
    return importlib.util.find_spec(NAME) is not None


class Engines:
    """A cluster of engines on this machine, in one process group as our ranks are. `close()` ends it.

    `setup`: the first cell on all of them. Raises EnginesError: they did not come in time, or `setup` failed.
    """

    def __init__(self, ranks: int, setup: str = "") -> None:
        import ipyparallel

        self._folder = tempfile.TemporaryDirectory()
        before = set(descendants(os.getpid()))
        self._started = set[int]()
        self._client: Any = None
        try:
            cluster: Any = ipyparallel.Cluster(
                n=ranks,
                profile_dir=self._folder.name,
                log_level=logging.ERROR,
                engines="local",
                engine_timeout=_PATIENCE,
                shutdown_atexit=False,  # `close` does it
            )
            self._client = cluster.start_and_connect_sync()
            self._view: Any = self._client[:]
            self._wait(self._view.scatter("rank", list(range(ranks)), flatten=True, block=False))
            self._wait(self._view.push({"store": str(Path(self._folder.name, "store")), "ranks": ranks}, block=False))
            self.seconds(_JOIN)
            self.seconds(setup)
            self._started = set(descendants(os.getpid())) - before
        except BaseException as error:
            self._started = set(descendants(os.getpid())) - before
            self.close()
            if isinstance(error, EnginesError) or not isinstance(error, Exception):
                raise
            raise EnginesError(f"{NAME}'s engines did not come: {_line(error)}") from error

    def seconds(self, code: str) -> float:
        """Time of one cell on all engines. Raises EnginesError: it failed, or took too long."""
        begun = time.perf_counter()
        self._wait(self._view.execute(code, block=False))
        return time.perf_counter() - begun

    def _wait(self, answers: Any) -> None:
        try:
            answers.get(_PATIENCE)
        except Exception as error:
            late = type(error).__name__ == "TimeoutError"  # ipyparallel's, which is no subclass of Python's
            words = f"no answer within {_PATIENCE:.0f} s" if late else _line(error)
            raise EnginesError(f"{NAME}'s engines did not go on: {words}") from error

    def close(self) -> None:
        """End all that was started, at once: its own way to stop takes seconds, or never ends."""
        if self._client is not None:
            self._client.close()
        for pid in self._started.intersection(descendants(os.getpid())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._folder.cleanup()


def _line(error: Exception) -> str:
    """What went wrong, in one line; the second of ipyparallel's own has the first engine's error."""
    return " ".join(str(error).split("\n")[:2])[:200].strip(" :") or type(error).__name__
