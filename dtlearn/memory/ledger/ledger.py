"""The ledger: every storage of a training step, what it is for, who made it, and from when to when it lives.

    with MemoryLedger(model, optimizer) as ledger:
        with ledger.phase("forward"):
            loss = loss_fn(model(inputs), targets)
        with ledger.phase("backward"):
            loss.backward()
        optimizer.step()
    print(ledger.peak, ledger.record().peak.by_category)

It counts storages, not tensors: views, ties and changes in place are no new memory. `storage_ledger` says which
storages it sees, `roles` what they are for, `saved` which of them the backward pass keeps, `origins` who made them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from .origins import Origin, Origins
from .record import Allocation, MemoryRecord, Phase
from .roles import Roles, Use, category
from .saved import watch_saved_tensors
from .storage_ledger import Storage, StorageLedger, tensors_in

HOST = "host"  # the device of what was offloaded where there is no accelerator
OFFLOADED = Use.PARAMETER | Use.GRADIENT | Use.STATE
DETACH = torch.ops.aten.detach.default  # very frequent, and it makes nothing
# Namespaces of operations: of those that tell torch's profiler what runs, and of those of `torch.distributed`.
PROFILER, DISTRIBUTED = "profiler", ("c10d", "_c10d_functional")


@dataclass(eq=False, slots=True)
class Entry:
    """A storage while it has one size; see `Allocation`.

    Attributes:
        uses: all that it was used as so far.
        owner: the module that it belongs to; None: to none, and the module that made it counts.
    """

    size: int
    uses: int
    module: str
    line: str
    operation: str
    phase: str
    made: int
    device: str
    gone: int | None = None
    owner: str | None = None

    def as_allocation(self) -> Allocation:
        return Allocation(
            bytes=self.size,
            category=category(self.uses),
            module=self.module if self.owner is None else self.owner,
            operation=self.operation,
            line=self.line,
            phase=self.phase,
            made=self.made,
            gone=self.gone,
            device=self.device,
        )


class EnteredStorage(Storage):
    """A storage and its entry."""

    __slots__ = ("entry",)
    entry: Entry


@dataclass(slots=True)
class OpenPhase:
    """A phase that may still run."""

    name: str
    start: int
    stop: int | None = None


class MemoryLedger(StorageLedger):
    """Counts the storages of a block, with the model and the optimizer that were there before.

    What it is given is there from tick 0 of the record's clock. Other tensors from before, the batch for instance,
    count from the moment at which an operation first gets them; give them as `inputs` to have them from the beginning.
    Then the figures are those of every byte that torch handed out to this thread.

    What is what: gradients are what hangs on a parameter's `.grad`. A bucket of DDP with `gradient_as_bucket_view` is
    the gradients, and counts once, as gradients; without it, and before the first backward pass, it is communication.
    Master weights in the optimizer's groups are optimizer state, as in the ZeRO paper (1910.02054). Activations are
    what autograd keeps of a forward pass, also inside a checkpoint or an offload, where the hooks of those decide what
    is kept. Communication is what an operation of `torch.distributed` sends or receives and what is nothing else.

    On a CPU, parameters, gradients and optimizer state that lie in memory of NumPy stand for what is in the memory of
    the host beside an accelerator: their device is "host", and `record().on("cpu")` is without them.

    It sees DDP whether it was built before or is built inside. It works through torch's hooks and changes no result,
    but slows every operation by some tens of microseconds. Functions of `torch.func` refuse to run inside, as they do
    with all saved-tensor hooks.

    Args:
        model: its parameters, buffers and gradients have names; wrapped in DDP or not. Tied parameters count once.
        optimizer: its state counts.
        inputs: tensors, or lists and dictionaries of tensors, that are there before.

    Attributes:
        now, peak: bytes, all devices together.

    Raises:
        ValueError: the model is on the meta device.
        RuntimeError: it is opened a second time.
    """

    def __init__(
        self, model: nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None, *, inputs: Any = ()
    ) -> None:
        super().__init__()
        self._origins = Origins(model)
        self._roles = Roles(model, optimizer, self._mark)
        self._inputs = inputs
        self._entries: list[Entry] = []
        self._phases: list[OpenPhase] = []
        self._clock = 0
        self._is_open = False
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            watch_saved_tensors(lambda tensor: self._mark(tensor, Use.SAVED), self._stack)
            self._origins.open(self._stack)
            self._roles.open(self._stack)
            for tensor in tensors_in((self._inputs,)):
                self._mark(tensor, Use.INPUT)
        except BaseException:
            self.__exit__()
            raise
        self._inputs = ()
        self._is_open = True
        return self

    def __exit__(self, *error: Any) -> None:
        if self._is_open:
            self._roles.scan()
        self._is_open = False
        self._stack.close()
        super().__exit__(*(error or (None, None, None)))

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Put what happens in the block into this phase. Phases may lie in each other; the innermost counts.

        Raises:
            RuntimeError: the ledger is not open.
        """
        if not self._is_open:
            raise RuntimeError(
                f"the phase {name!r} belongs in the block of the ledger: with MemoryLedger(...) as ledger"
            )
        self._roles.scan_again()
        phase = OpenPhase(name, self._clock)
        self._phases.append(phase)
        try:
            yield
        finally:
            self._roles.scan_again()
            phase.stop = self._clock

    def record(self) -> MemoryRecord:
        """Return what was counted so far, as data; after the block, what was counted in it."""
        if self._is_open:
            self._roles.scan()
        phases = [Phase(p.name, p.start, self._clock if p.stop is None else p.stop) for p in self._phases]
        return MemoryRecord(tuple(entry.as_allocation() for entry in self._entries), tuple(phases), self._clock)

    def _operation(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        space = namespace(func)
        if func is DETACH or space == PROFILER:
            return func(*args, **kwargs)
        self._roles.is_current = False
        self._origins.note()
        result = super()._operation(func, types, args, kwargs)
        if space in DISTRIBUTED:
            for tensor in tensors_in((args, kwargs, result)):
                self._mark(tensor, Use.SENT)
        return result

    def _mark(self, tensor: torch.Tensor, use: int, owner: str | None = None) -> Entry:
        """Add a use to what is known of a tensor's storage; of gradients in one bucket, what their modules share."""
        storage = tensor.untyped_storage()
        if (known := self._storages.get(storage._cdata)) is None:
            self._add(storage, None)
            known = self._storages[storage._cdata]
        entry: Entry = known.entry
        if entry.uses & use != use:  # else it is what it was at the last scan, as nearly always
            entry.uses |= use
            if use & OFFLOADED and not storage.resizable() and not storage.is_shared():
                entry.device = HOST  # NumPy's memory
        if owner is not None and entry.owner not in ("", owner):
            entry.owner = owner if entry.owner is None else common_module(entry.owner, owner)
        return entry

    def _add(self, storage: torch.UntypedStorage, func: Any) -> None:
        known = self._storages[storage._cdata] = EnteredStorage(storage, self._gone)
        origin, operation, uses = Origin("", ""), "", Use.MET
        if func is not None:
            origin, operation = self._origins.current(), func._schema.name
            is_received = operation == "aten::set_" and storage.is_shared()  # from a worker of a DataLoader
            uses = Use.MET if is_received else 0
        known.entry = self._enter(known.size, uses, origin, operation, str(storage.device))
        self._count(known, known.size)

    def _resized(self, storage: torch.UntypedStorage) -> None:
        known = self._storages.get(storage._cdata)
        if known is not None and known.size != storage.nbytes() and self._is_open:
            before = known.entry
            self._leave(before)
            known.size = storage.nbytes()
            known.entry = self._enter(known.size, before.uses, self._origins.current(), "resize_", before.device)
            known.entry.owner = before.owner
            self._count(known, known.size)

    def _gone(self, known: Any) -> None:
        self._storages.pop(known.address, None)
        if self._is_open:  # what goes after the block lives at its end
            self._leave(known.entry)
            self._count(known, 0)

    def _enter(self, size: int, uses: int, origin: Origin, operation: str, device: str) -> Entry:
        if size and self._is_open:
            self._clock += 1
        phase = next((phase.name for phase in reversed(self._phases) if phase.stop is None), "")
        entry = Entry(size, uses, *origin, operation, phase, self._clock, device=device)
        if size:
            self._entries.append(entry)
        return entry

    def _leave(self, entry: Entry) -> None:
        if entry.size:
            self._clock += 1
            entry.gone = self._clock


@functools.cache
def namespace(func: Any) -> str:
    """The namespace of an operation: "aten", say."""
    return str(func._schema.name).partition("::")[0]


def common_module(one: str, other: str) -> str:
    """The innermost module that both are in; "" if it is the model."""
    if one == other:
        return one
    pairs = zip(one.split("."), other.split("."), strict=False)
    return ".".join(a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
