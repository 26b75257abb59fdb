"""Watches ranks find each other: every call on the store during `init_process_group`.

A store is a small shared dictionary. Each rank writes its own address under a key and waits for those of the others.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from .machine.run_folder import run_directory
from .run import run_ranks

_WRITES = ("set", "add", "compare_set", "append")


@dataclass(frozen=True)
class StoreEvent:
    """One call on the rendezvous store."""

    rank: int  # the rank that called
    action: str  # "set", "add", "append" or "compare_set" (writes); "get", "wait" or "check" (reads)
    key: str  # the key in the store
    start_ns: int  # monotonic clock of this machine
    end_ns: int | None  # likewise; None if the call never returned
    nbytes: int = 0  # size of the value that was written or read, where there is one

    @property
    def writes(self) -> bool:
        return self.action in _WRITES


def record_rendezvous(world_size: int, late: dict[int, float] | None = None) -> list[StoreEvent]:
    """Start 1 to 64 ranks, let them meet through a file, and return what each of them did on the store.

    `late`, `{rank: seconds}`: these ranks come later, as on a slow machine.
    """
    with run_directory() as folder:
        result = run_ranks(_meet, world_size, str(folder / "store"), late or {}, device="cpu", init_group=False)
    return sorted((e for events in result for e in events), key=lambda e: (e.start_ns, e.rank))


def _meet(path: str, late: dict[int, float]) -> list[StoreEvent]:
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    time.sleep(late.get(rank, 0.0))
    store = _recording_store(dist.FileStore(str(Path(path)), size), rank)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    dist.barrier()  # the first collective opens nothing new: the connections are there
    return list(store.events)


def _recording_store(inner: Any, rank: int) -> Any:
    """A store that passes every call on to `inner` and notes it. A class made here, because it needs torch."""
    import torch.distributed as dist

    class RecordingStore(dist.Store):
        def __init__(self) -> None:
            super().__init__()
            self.events: list[StoreEvent] = []

        def _note(self, action: str, key: str, call: Callable[[], Any], nbytes: int = 0) -> Any:
            start = time.monotonic_ns()
            value = call()
            size = nbytes or (len(value) if isinstance(value, bytes) else 0)
            self.events.append(StoreEvent(rank, action, key, start, time.monotonic_ns(), size))
            return value

        def set(self, key: str, value: Any) -> None:
            self._note("set", key, lambda: inner.set(key, value), len(value))

        def get(self, key: str) -> bytes:
            return bytes(self._note("get", key, lambda: inner.get(key)))

        def add(self, key: str, amount: int) -> int:
            return int(self._note("add", key, lambda: inner.add(key, amount)))

        def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
            return bytes(self._note("compare_set", key, lambda: inner.compare_set(key, expected, desired)))

        def set_timeout(self, timeout: timedelta) -> None:
            inner.set_timeout(timeout)

        def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
            call = (lambda: inner.wait(keys, timeout)) if timeout is not None else (lambda: inner.wait(keys))
            self._note("wait", keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more", call)

    return RecordingStore()
