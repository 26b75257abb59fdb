"""Events of the units of a sharded model, written down by wrapping their verbs: the units know nothing of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import wraps
from typing import NamedTuple, Protocol


class UnitEvent(NamedTuple):
    """Something that happened to a unit.

    Attributes:
        ns: `time.monotonic_ns()`, the clock of records.
        unit: its name; "" is the root.
        what: "unshard" (its gather is launched), "wait_for_unshard" (it has ended: the computation begins), "computed",
            "reshard", or "reduce" (its reduce-scatter is launched).
    """

    ns: int
    unit: str
    what: str


class WatchedUnit(Protocol):
    """A unit whose verbs are written down."""

    name: str
    is_unsharded: bool


def record_units(units: Iterable[WatchedUnit]) -> list[UnitEvent]:
    """Write down from now on what happens to these units: in the list that is returned.

    **Communication** and **Memory**: none beyond the list.
    """
    events: list[UnitEvent] = []
    for unit in units:
        _Recorder(unit, events)
    return events


class _Recorder:
    """Replaces the verbs of one unit by the same ones that also write down when they do something."""

    def __init__(self, unit: WatchedUnit, events: list[UnitEvent]) -> None:
        self.unit, self.events, self.computes = unit, events, False
        self._wrap("unshard", before=lambda: None if unit.is_unsharded else self.note("unshard"))
        self._wrap("wait_for_unshard", after=self.begins)
        self._wrap("to_sharded", before=self.ends)
        self._wrap("reshard", before=self.reshards)
        self._wrap("reduce_gradients", before=lambda: self.note("reduce"))

    def note(self, what: str) -> None:
        self.events.append(UnitEvent(time.monotonic_ns(), self.unit.name, what))

    def begins(self) -> None:
        self.computes = True
        self.note("wait_for_unshard")

    def ends(self) -> None:
        if self.computes:
            self.computes = False
            self.note("computed")

    def reshards(self) -> None:
        self.ends()
        if self.unit.is_unsharded:
            self.note("reshard")

    def _wrap(self, verb: str, before: Callable[[], object] = bool, after: Callable[[], object] = bool) -> None:
        does = getattr(self.unit, verb)

        @wraps(does)
        def recorded() -> object:
            before()
            result = does()
            after()
            return result

        setattr(self.unit, verb, recorded)
