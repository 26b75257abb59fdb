"""The memory that tensors take while something runs, counted by storage: the same figure on every machine and device.

What counts: the bytes of every storage that an operation of torch returns in this thread, once, from then until the
last tensor on it is gone. So a view is free, a change in place is free, and a temporary counts while it lives.

What does not:

- what was there before, such as inputs and parameters: a storage that is first seen as an argument;
- memory that torch's dispatcher does not hand out: buffers of gloo and NCCL, NumPy's arrays, Python objects;
- what the allocator keeps or rounds up: `torch.cuda.max_memory_allocated` and the process's size are larger;
- other threads, sparse tensors, and a storage that is resized later.

A strategy's **Memory** section speaks of these bytes, and its tests prove it with this ledger. It slows every operation
by some microseconds, so nothing is timed while it is active.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class MemoryLedger(TorchDispatchMode):
    """Adds up the bytes of tensors that are made while it is active, and takes them off when they are gone.

    What was there before, such as the inputs, does not count; a view or a change in place makes nothing.

    Attributes:
        now, peak: bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: dict[int, int] = {}  # storages by their address: bytes, 0 for those that do not count

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in tree_leaves((args, kwargs)):
            self._note(tensor, counts=False)
        result = func(*args, **kwargs)
        for tensor in tree_leaves(result):
            self._note(tensor, counts=True)
        return result

    def _note(self, tensor: Any, counts: bool) -> None:
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self._known:
            self._known[address] = storage.nbytes() if counts else 0
            self.now += self._known[address]
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._gone, address)  # the object lives as long as the memory

    def _gone(self, address: int) -> None:
        self.now -= self._known.pop(address, 0)


@contextlib.contextmanager
def measured(wanted: bool) -> Iterator[MemoryLedger | None]:
    """A ledger for the block, or None if it is not wanted: it slows every operation."""
    if not wanted:
        yield None
        return
    with MemoryLedger() as ledger:
        yield ledger
