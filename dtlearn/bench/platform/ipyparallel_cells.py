"""The same cells on ipyparallel's engines, a peer of our ranks, where it is installed."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from ...runtime.machine.processes import descendants, start_time

NAME, INSTALL = "ipyparallel", "pip install ipyparallel: then its engines run the same cells, in turn with ours."
_JOIN = """
import torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
"""


def installed() -> bool:
    return importlib.util.find_spec(NAME) is not None


class Engines:
    """A cluster of engines on this machine, in one process group as our ranks are. `close()` ends it."""

    def __init__(self, ranks: int) -> None:
        import ipyparallel

        self._folder = tempfile.TemporaryDirectory()
        before = set(descendants(os.getpid()))
        self._started: dict[int, int | None] = {}
        self._cluster: Any = ipyparallel.Cluster(
            n=ranks, profile_dir=self._folder.name, log_level=logging.ERROR, engines="local"
        )
        try:
            self._client: Any = self._cluster.start_and_connect_sync()
            self._view: Any = self._client[:]
            self._view.scatter("rank", list(range(ranks)), flatten=True, block=True)
            self._view.push({"store": str(Path(self._folder.name, "store")), "ranks": ranks}, block=True)
            self.seconds(_JOIN)
            self._started = {pid: start_time(pid) for pid in set(descendants(os.getpid())) - before}
        except BaseException:
            self.close()
            raise

    def seconds(self, code: str) -> float:
        """Time of one cell on all engines."""
        begun = time.perf_counter()
        self._view.execute(code, block=True)
        return time.perf_counter() - begun

    def close(self) -> None:
        self._cluster.stop_cluster_sync()
        for pid, begun in self._started.items():  # the guards of its engines stay for seconds
            with contextlib.suppress(ProcessLookupError):
                if begun is not None and start_time(pid) == begun:
                    os.kill(pid, signal.SIGKILL)
        self._folder.cleanup()
