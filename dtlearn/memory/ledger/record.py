"""Counts of a ledger, as data: every storage, what it was for, who made it, and from when to when it lived.

Figures, exercises and tests read it in any process: plain values that can be pickled, no torch.

The clock is an integer that moves by one whenever a storage is made or released. Tick 0 is what was there before. A
storage that is resized, as sharded parameters are, is one `Allocation` for each of its sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate

# In the order in which figures stack them: what lies there between steps, then what one step adds.
CATEGORIES = (
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "buffers",
    "communication",
    "temporaries",
    "inputs",
)


@dataclass(frozen=True)
class Allocation:
    """The memory behind one tensor and all its views: one storage, of one size.

    Attributes:
        bytes: its size.
        category: one of `CATEGORIES`: what it is for, from the moment it is made. What an operation makes and the
            backward pass keeps is an activation, if it is not the memory of a parameter, a buffer or an input.
        module: dotted name of the innermost module whose forward pass, or whose part of the backward pass, made it;
            "" in no submodule of the model. For parameters, buffers, gradients and optimizer state: whose they are.
        operation: what made it, as "aten::mm"; "" if it was there before.
        line: "file:line" of the user's code that ran then; "" if it was there before, or made by an autograd thread.
        phase: innermost phase in which it was made; "" in none.
        made, gone: ticks of the clock. It lives after tick `made` (0: it was there before) and no longer after tick
            `gone` (None: it lives at the end).
        device: where it is, as "cpu" or "cuda:0"; "host": beside the CPU, where that stands for a device.
    """

    bytes: int
    category: str
    module: str
    operation: str
    line: str
    phase: str
    made: int
    gone: int | None
    device: str = "cpu"

    def lives_at(self, tick: int) -> bool:
        """Return whether it is there after this tick."""
        return self.made <= tick and (self.gone is None or tick < self.gone)


@dataclass(frozen=True)
class Phase:
    """A named part of the step: the ticks after `start`, up to and including `stop`."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Peak:
    """The largest number of bytes that lived at once.

    Attributes:
        at: the first tick after which there were as many.
        bytes: how many.
        by_category: their sum for each of `CATEGORIES`.
        by_module: their sum for each module, the largest first.
        phase: innermost phase that the peak is in; "" in none.
        owner: of the storages that live at the peak and were made in its phase, the largest; of equal ones the last. Of
            all that live if the phase made none; None if nothing lives.
    """

    at: int
    bytes: int
    by_category: dict[str, int]
    by_module: dict[str, int]
    phase: str
    owner: Allocation | None


@dataclass(frozen=True)
class MemoryRecord:
    """The memory of one process while a ledger counted it.

    Attributes:
        allocations: all storages, in the order in which they were made.
        phases: in the order in which they began.
        clock: the last tick.
    """

    allocations: tuple[Allocation, ...]
    phases: tuple[Phase, ...]
    clock: int

    def live(self, category: str | None = None, module: str | None = None) -> list[int]:
        """Bytes that live after each tick, `clock + 1` numbers.

        Args:
            category: only those of this category.
            module: only those of this module and of the modules inside it; "" for those of none.

        Raises:
            ValueError: there is no such category.
        """
        if category is not None and category not in CATEGORIES:
            raise ValueError(f"no category {category!r}: take one of {', '.join(CATEGORIES)}")
        changes = [0] * (self.clock + 1)
        for allocation in self.allocations:
            if category in (None, allocation.category) and (module is None or is_inside(allocation.module, module)):
                changes[allocation.made] += allocation.bytes
                if allocation.gone is not None:
                    changes[allocation.gone] -= allocation.bytes
        return list(accumulate(changes))

    def timeline(self) -> dict[str, list[int]]:
        """`live` for each of `CATEGORIES`: what a stacked figure draws."""
        return {category: self.live(category) for category in CATEGORIES}

    def at(self, tick: int) -> tuple[Allocation, ...]:
        """The storages that live after this tick.

        Raises:
            ValueError: the record has no such tick.
        """
        if not 0 <= tick <= self.clock:
            raise ValueError(f"tick {tick}: this record has the ticks 0 to {self.clock}")
        return tuple(allocation for allocation in self.allocations if allocation.lives_at(tick))

    def inside(self, name: str) -> MemoryRecord:
        """The part of the record in the last phase of this name: its tick 0 is where the phase begins.

        Raises:
            ValueError: there is no such phase.
        """
        index = max((number for number, phase in enumerate(self.phases) if phase.name == name), default=None)
        if index is None:
            raise ValueError(f"no phase {name!r}: this record has {', '.join(p.name for p in self.phases) or 'none'}")
        start, stop = self.phases[index].start, self.phases[index].stop
        allocations = (
            replace(
                allocation,
                made=max(0, allocation.made - start),
                gone=None if allocation.gone is None or allocation.gone > stop else allocation.gone - start,
                phase="" if allocation.made <= start or allocation.phase == name else allocation.phase,
            )
            for allocation in self.allocations
            if allocation.made <= stop and (allocation.gone is None or allocation.gone > start)
        )
        inner = (phase for phase in self.phases[index + 1 :] if phase.stop <= stop)
        phases = tuple(Phase(phase.name, phase.start - start, phase.stop - start) for phase in inner)
        return MemoryRecord(tuple(allocations), phases, stop - start)

    def on(self, device: str) -> MemoryRecord:
        """The same record with the storages of one device only, as "cuda:0"; "cuda" takes all of its kind."""
        allocations = (a for a in self.allocations if device in (a.device, a.device.partition(":")[0]))
        return replace(self, allocations=tuple(allocations))

    def phase_at(self, tick: int) -> str:
        """Name of the innermost phase that this tick is in; "" in none."""
        names = [phase.name for phase in self.phases if phase.start < tick <= phase.stop]
        return names[-1] if names else ""  # of phases in each other, the inner one began last

    @property
    def peak(self) -> Peak:
        """When most bytes lived, how many, and whose they were."""
        live = self.live()
        at = live.index(max(live))
        there, phase = self.at(at), self.phase_at(at)
        candidates = [allocation for allocation in there if allocation.phase == phase and allocation.made] or there
        owner = max(candidates, key=lambda allocation: (allocation.bytes, allocation.made), default=None)
        by_category = sums((allocation.category, allocation.bytes) for allocation in there)
        by_module = sums((allocation.module, allocation.bytes) for allocation in there)
        return Peak(
            at,
            live[at],
            {name: by_category.get(name, 0) for name in CATEGORIES},
            largest_first(by_module),
            phase,
            owner,
        )


def is_inside(module: str, outer: str) -> bool:
    """Return whether `module` is `outer` or one of the modules in it; "" has nothing in it."""
    return module == outer or (bool(outer) and module.startswith(f"{outer}."))


def sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The sum of the numbers of each name."""
    total = Counter[str]()
    for name, number in pairs:
        total[name] += number
    return dict(total)


def largest_first(numbers: dict[str, int]) -> dict[str, int]:
    """The same dictionary, ordered; names with equal numbers by the alphabet."""
    return dict(sorted(numbers.items(), key=lambda item: (-item[1], item[0])))
