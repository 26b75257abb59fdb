"""What the ranks said to each other, as data: one format for everything that communicates.

A `Record` is a list of `Event`s from all ranks of one run. The recorder (`recording/`) writes it on the ranks;
figures, tests, budgets and the grader read it here. This file needs neither torch nor a process group.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

from .event import Event, Mark, Span
from .pairs import pairs


@dataclass(frozen=True)
class Record:
    """The recorded communication of one run.

    Attributes:
        world_size: number of ranks in the run.
        events: all calls of all ranks, ordered by rank, then by call number.
        label: said in every figure that is drawn from this record ("gloo on CPU", "emulated link", ...).
        spans: phases of all ranks, ordered by rank, then by time.
        incomplete: why something is missing, in a sentence ("the record of rank 1 is incomplete: ..."); "" if all is
            there.
        marks: of a graded run, ordered by rank, then by time.
    """

    world_size: int
    events: tuple[Event, ...] = field(default=())
    label: str = ""
    spans: tuple[Span, ...] = field(default=())
    incomplete: str = ""
    marks: tuple[Mark, ...] = ()

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def select(
        self, *, rank: int | None = None, op: str | None = None, group: str | None = None, phase: str | None = None
    ) -> Self:
        """The part of the record with that rank, op, group and phase (None: any). Spans are selected by rank and phase.

        A call is in the innermost phase only; `phase=""` selects calls outside all phases.
        """
        events = (
            e
            for e in self.events
            if (rank is None or e.rank == rank)
            and (op is None or e.op == op)
            and (group is None or e.group == group)
            and (phase is None or e.phase == phase)
        )
        spans = (s for s in self.spans if (rank is None or s.rank == rank) and (phase is None or s.phase == phase))
        return replace(self, events=tuple(events), spans=tuple(spans))

    def nbytes(self, **which: Any) -> int:
        """Payload bytes of the selected calls (see `select`), summed over ranks."""
        return sum(e.nbytes for e in self.select(**which))

    def counts(self) -> Counter[tuple[int, str]]:
        """How many calls each rank made: `{(rank, op): calls}`."""
        return Counter((e.rank, e.op) for e in self.events)

    def unfinished(self) -> tuple[Event, ...]:
        """Calls that never returned: where a hang sits."""
        return tuple(e for e in self.events if e.end_ns is None)

    def span_ns(self) -> tuple[int, int]:
        """First start and last end (or start, for a call that never returned), in ns; (0, 0) if empty."""
        ends = (e.end_ns if e.end_ns is not None else e.start_ns for e in self.events)
        return min((e.start_ns for e in self.events), default=0), max(ends, default=0)

    def messages(self) -> list[tuple[Event, Event]]:
        """Every send with the recv that took it. One without the other, and a recv from any source, are left out."""
        return list(pairs(self.events))


def merge(world_size: int, per_rank: Iterable[Iterable[Event]], label: str = "", spans: Iterable[Span] = ()) -> Record:
    """One record from the events of every rank."""
    events = sorted((e for events in per_rank for e in events), key=lambda e: (e.rank, e.seq))
    ordered = sorted(spans, key=lambda s: (s.rank, s.start_ns))
    return Record(world_size, tuple(events), label, tuple(ordered))
