"""What a recorded training step says of overlap: each bucket's way, and the time in which a rank only communicates.

When is communication exposed? While the rank computes nothing because it waits for it:

- a call that blocks: as long as it lasts;
- an asynchronous call of Python code, such as our own DDP's: from `wait()` (`Event.wait_ns`) until `wait()` returns;
- one that torch's C++ made and waits for, as its DDP does: nobody sees that wait. The record has the end of the data's
  way, and when calls were launched. The last bucket leaves when the last gradient is there, so from the last launch on
  nothing is left to compute; what is still on its way then is exposed. That is the end of computation unless
  parameters are unused or frozen, or backward goes on to inputs that require a gradient: then it is too early, and
  the exposed time an upper bound.

The backward span itself says nothing of it: wrappers wait inside `backward()`.
"""

import itertools
import math
from dataclasses import dataclass, replace
from statistics import mean

from .event import Event, Span
from .intervals import Interval, length, union
from .record import Record


@dataclass(frozen=True)
class RecordedStep:
    """One training step of one rank. Times in ns, on the record's clock."""

    rank: int  # global rank
    number: int  # of the step on this rank, from 0
    spans: tuple[Span, ...]  # its phases; forward, backward and step among them
    events: tuple[Event, ...]  # its collectives, in order

    @property
    def begin(self) -> int:
        return min([*(s.start_ns for s in self.spans), *(e.start_ns for e in self.events)])

    @property
    def end(self) -> int:
        return max([*(s.end_ns or s.start_ns for s in self.spans), *(e.end_ns or e.start_ns for e in self.events)])

    @property
    def buckets(self) -> tuple[Event, ...]:
        """The calls that reduce gradients: all-reduces from when backward began to when the optimizer steps."""
        began = min((s.start_ns for s in self.spans if s.phase == "backward"), default=self.end)
        steps = max((s.start_ns for s in self.spans if s.phase == "step"), default=self.end + 1)
        return tuple(e for e in self.events if e.op == "all_reduce" and began <= e.start_ns < steps)

    @property
    def exposed(self) -> list[Interval]:
        """When the rank only waited for communication; see above."""
        last: dict[str, int] = {}  # launch of what C++ waits for, by phase
        for event in self.events:
            if event.asynchronous and event.wait_ns is None:
                last[event.phase] = max(last.get(event.phase, 0), event.start_ns)
        return union(_wait(e, last.get(e.phase, 0)) for e in self.events if e.end_ns is not None)

    @property
    def exposed_seconds(self) -> float:
        return length(self.exposed) / 1e9

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) / 1e9


def arrival(event: Event) -> int | None:
    """When the call's data had arrived, in ns, as far as the record knows: at the latest when the rank had waited."""
    if event.end_ns is None or event.arrived_ns is None:
        return event.end_ns
    return min(event.arrived_ns, event.end_ns)


def recorded_steps(record: Record, rank: int) -> list[RecordedStep]:
    """The training steps of one rank.

    A step begins with the first forward pass after an optimizer's step; in a record without those, with the first one
    after a backward pass. Calls before the first forward pass belong to none.
    """
    spans = [s for s in record.spans if s.rank == rank]
    ends_with = "step" if any(s.phase == "step" for s in spans) else "backward"
    begins: list[int] = []
    ended = True
    for span in spans:
        if span.phase == "forward" and ended:
            begins.append(span.start_ns)
            ended = False
        ended = ended or span.phase == ends_with
    steps = []
    for number, (begin, until) in enumerate(itertools.pairwise([*begins, math.inf])):
        inside = tuple(s for s in spans if begin <= s.start_ns < until)
        events = tuple(e for e in record.events if e.rank == rank and begin <= e.start_ns < until and not e.is_p2p)
        steps.append(RecordedStep(rank, number, inside, events))
    return steps


def exposed(record: Record) -> dict[int, list[float]]:
    """Seconds of exposed communication: `{rank: [of each step]}`."""
    return {rank: [step.exposed_seconds for step in recorded_steps(record, rank)] for rank in range(record.world_size)}


def exposed_of_slowest(record: Record) -> float:
    """Seconds per step, of the rank that waits longest in it: their mean. 0 for a record without steps."""
    steps = list(zip(*exposed(record).values(), strict=False))
    return mean(max(of_ranks) for of_ranks in steps) if steps else 0.0


def part(record: Record, phase: str) -> Record:
    """What happened in spans of this name: `with dtlearn.phase("naive"): ...` around some steps, say.

    Unlike `Record.select`, it has the phases inside and their calls.

    Raises:
        ValueError: the record has no such phase.
    """
    times = {(s.rank, s.start_ns, s.end_ns) for s in record.spans if s.phase == phase}
    if not times:
        names = ", ".join(sorted({s.phase for s in record.spans})) or "none"
        raise ValueError(f"this record has no phase {phase!r}; it has: {names}")

    def inside(entry: Event | Span) -> bool:
        return any(entry.rank == r and a <= entry.start_ns and (b is None or entry.start_ns < b) for r, a, b in times)

    events = tuple(filter(inside, record.events))
    return replace(record, events=events, spans=tuple(s for s in record.spans if inside(s) and s.phase != phase))


def _wait(event: Event, nothing_left: int) -> Interval:
    """When the rank waited for this call and could do nothing else."""
    assert event.end_ns is not None
    if not event.asynchronous:
        return event.start_ns, event.end_ns
    if event.wait_ns is not None:
        return event.wait_ns, event.end_ns
    return max(event.start_ns, nothing_left), event.end_ns
