"""What the ranks of a job with several roles did, and when: plain data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from time import monotonic
from typing import NamedTuple

from .rank_roles import RankRoles, Role


class RoleEvent(NamedTuple):
    """One thing that one rank did.

    Attributes:
        rank, role: who.
        name: "step", "save", "evaluate"; of a serving rank "load" and "answer".
        step: the update that was made, or of the checkpoint that was written, or read.
        start, end: in seconds, on the clock that all processes of a machine share.
    """

    rank: int
    role: Role
    name: str
    step: int
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How many seconds it took."""
        return self.end - self.start


@dataclass
class RoleLog:
    """The events of one rank so far."""

    rank: int
    role: Role
    events: list[RoleEvent] = field(default_factory=list)

    @contextmanager
    def note(self, name: str, step: int) -> Iterator[None]:
        """Note an event that lasts as long as the block."""
        start = monotonic()
        yield
        self.events.append(RoleEvent(self.rank, self.role, name, step, start, monotonic()))


class ServedAnswer(NamedTuple):
    """A request that was served: its number, the step of the model's checkpoint, and the new tokens."""

    request: int
    step: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class RoleOutcome:
    """What one rank gives back: each role fills its part.

    Attributes:
        events: in the order of their ends.
        losses: of training, one for each step.
        evaluations: {step of the checkpoint: validation loss}.
        answers: of serving.
    """

    events: tuple[RoleEvent, ...] = ()
    losses: tuple[float, ...] = ()
    evaluations: dict[int, float] = field(default_factory=dict)
    answers: tuple[ServedAnswer, ...] = ()


@dataclass(frozen=True)
class SeparateRun:
    """A job whose ranks have several roles.

    Attributes:
        roles: of the ranks.
        outcomes: of each rank.
    """

    roles: RankRoles
    outcomes: tuple[RoleOutcome, ...]

    @property
    def events(self) -> list[RoleEvent]:
        """The events of all ranks, sorted by start; the first begins at 0."""
        found = sorted((event for own in self.outcomes for event in own.events), key=lambda event: event.start)
        first = found[0].start if found else 0.0
        return [event._replace(start=event.start - first, end=event.end - first) for event in found]

    def select(self, name: str, rank: int | None = None) -> list[RoleEvent]:
        """The events of a name, of one rank or of all."""
        return [e for e in self.events if e.name == name and rank in (None, e.rank)]

    @property
    def losses(self) -> tuple[float, ...]:
        """The losses of training, one for each step; the same on all ranks that train."""
        return self.outcomes[0].losses

    @property
    def evaluations(self) -> dict[int, float]:
        """{step of the checkpoint: validation loss}, whoever evaluated it."""
        return {step: loss for own in self.outcomes for step, loss in sorted(own.evaluations.items())}

    @property
    def answers(self) -> list[ServedAnswer]:
        """The answers of all serving ranks."""
        return [answer for own in self.outcomes for answer in own.answers]

    @property
    def step_seconds(self) -> list[float]:
        """For each step but the first: seconds from the end of the one before to its own, on the first rank.

        So what comes between two steps counts: a save, and an evaluation that training does itself.
        """
        ends = [event.end for event in self.select("step", rank=0)]
        return [after - before for before, after in pairwise(ends)]

    def at_once(self, one: str, other: str) -> int:
        """How many events of one name overlap an event of another name."""
        others = self.select(other)
        return sum(any(a.start < b.end and b.start < a.end for b in others) for a in self.select(one))
