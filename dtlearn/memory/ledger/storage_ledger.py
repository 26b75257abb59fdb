"""The memory that tensors take while something runs, counted by storage: the same figure on every machine and device.

What counts: the bytes of every storage that an operation of torch returns in this thread, or in a thread of autograd
that works for it, once, from then until the last tensor on it is gone. So a view is free, a change in place is free,
and a temporary counts while it lives. A storage that is resized counts with its new size.

What does not:

- what was there before, such as inputs and parameters: a storage that is first seen as an argument;
- memory that torch's dispatcher does not hand out: what an operation takes for itself while it computes, buffers of
  gloo and NCCL, NumPy's arrays, Python objects;
- what the allocator keeps or rounds up: `torch.cuda.max_memory_allocated` and the process's size are larger;
- tensors that other threads or processes make, such as workers of a DataLoader, and tensors on the meta device, which
  have no memory.

A strategy's **Memory** section speaks of these bytes, and its tests prove it with this ledger; so do the `peak_bytes`
budgets of exercises. It slows every operation by some microseconds, so nothing is timed while it is active.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type

LIFT_FRESH = torch.ops.aten.lift_fresh.default  # what `torch.tensor`, `from_numpy` end with
STRIDED = torch.strided


class Storage(weakref.ref[torch.UntypedStorage]):
    """Facts about one storage, without keeping it alive.

    Attributes:
        address: of torch's own object.
        size: bytes.
        counted: bytes of them that count.
    """

    __slots__ = ("address", "counted", "size")
    address: int
    size: int
    counted: int

    def __new__(cls, storage: torch.UntypedStorage, when_gone: Callable[[Any], None]) -> Self:
        self = super().__new__(cls, storage, when_gone)  # torch keeps the object as long as the memory
        self.address = storage._cdata
        self.size = 0 if storage.device.type == "meta" else storage.nbytes()
        self.counted = 0
        return self


class StorageLedger(TorchDispatchMode):
    """Adds up the bytes of tensors that are made while it is active, and takes them off when they are gone.

    What was there before, such as the inputs, does not count; a view or a change in place makes nothing. Another ledger
    may be active inside it or around it.

    Attributes:
        now, peak: bytes.

    Raises:
        RuntimeError: it is opened a second time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._storages: dict[int, Any] = {}  # a `Storage` of each that lives, by address
        self._was_opened = False

    def __enter__(self) -> Self:
        if self._was_opened:
            raise RuntimeError("a ledger counts one block, and this one was opened before: make a new one")
        self._was_opened = True
        self._resize_ = watch_resizes(self._resized)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.UntypedStorage.resize_ = self._resize_  # type: ignore[method-assign]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._operation(func, types, args, kwargs or {})  # torch wraps each `__torch_dispatch__`, at some cost

    def _operation(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if types and any(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented  # a DTensor, say: what counts are its own operations, on plain tensors
        if func is not LIFT_FRESH:
            for tensor in tensors_in((args, kwargs) if kwargs else args):
                self._note(tensor, None)
        result = func(*args, **kwargs)
        for tensor in tensors_in(result):
            is_lent = func is LIFT_FRESH and not tensor.untyped_storage().resizable()  # by NumPy
            self._note(tensor, None if is_lent else func)
        return result

    def _note(self, tensor: torch.Tensor, func: Any) -> None:
        """A tensor is the result of an operation, or, with None, an argument of one."""
        storage = tensor.untyped_storage()
        known = self._storages.get(storage._cdata)
        if known is None:
            self._add(storage, func)
        elif func is not None and known.size != storage.nbytes():  # `out=` made room
            self._resized(storage)

    def _add(self, storage: torch.UntypedStorage, func: Any) -> None:
        """A storage is seen for the first time."""
        known = self._storages[storage._cdata] = Storage(storage, self._gone)
        if func is not None:
            self._count(known, known.size)

    def _resized(self, storage: torch.UntypedStorage) -> None:
        """The storage may have another size than before. What was there before counts as far as it has grown."""
        known = self._storages.get(storage._cdata)
        if known is not None:
            size = storage.nbytes()
            self._count(known, max(0, known.counted + size - known.size))
            known.size = size

    def _count(self, known: Storage, size: int) -> None:
        self.now += size - known.counted
        known.counted = size
        self.peak = max(self.peak, self.now)

    def _gone(self, known: Any) -> None:
        self._storages.pop(known.address, None)
        self._count(known, 0)


@contextlib.contextmanager
def measured(wanted: bool) -> Iterator[StorageLedger | None]:
    """A ledger for the block, or None if it is not wanted: it slows every operation."""
    if not wanted:
        yield None
        return
    with StorageLedger() as ledger:
        yield ledger


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    """The tensors of an operation's arguments or results; of a sparse tensor, the indices and the values."""
    if isinstance(value, torch.Tensor):
        return plain_tensors(value)
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):  # twice as fast as `list | tuple`, for each operation
        return ()
    tensors: list[torch.Tensor] = []
    for part in value:
        if isinstance(part, torch.Tensor):
            tensors += plain_tensors(part)
        elif isinstance(part, (list, tuple, dict)):
            tensors += tensors_in(part)
    return tensors


def plain_tensors(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors that hold the memory of this one: itself, or its parts."""
    if tensor.layout is STRIDED:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    return ()  # compressed sparse formats


def watch_resizes(notify: Callable[[torch.UntypedStorage], None]) -> Any:
    """Have every `UntypedStorage.resize_`, which is no operation of the dispatcher, told to `notify` after it.

    Returns:
        What `torch.UntypedStorage.resize_` was before: put it back in the end.
    """
    before = torch.UntypedStorage.resize_

    def resize_(storage: torch.UntypedStorage, size: int) -> Any:
        result = before(storage, size)
        notify(storage)
        return result

    torch.UntypedStorage.resize_ = resize_  # type: ignore[assignment, method-assign]
    return before
