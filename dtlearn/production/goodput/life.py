"""The life of a job as spans: training that stays, saves, training that was lost, restarts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

KINDS = ("training", "save", "lost", "restart")


class LifeSpan(NamedTuple):
    """Some time in which a job did one thing.

    Attributes:
        kind: "training" (its steps are in a later checkpoint, or the job ended with them), "save", "lost" (training,
            or a save, that a failure made worthless), "restart" (from a failure until it trains again, or fails again).
        start, end: seconds since the job began to train.
        steps: steps made in it; 0 where steps are not counted.
    """

    kind: str
    start: float
    end: float
    steps: int = 0

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class JobLife:
    """What a job did with its time.

    Attributes:
        spans: one after the other, without gaps.
        failures: how many there were.

    Raises:
        ValueError: an unknown kind, or spans that leave a gap or overlap.
    """

    spans: tuple[LifeSpan, ...]
    failures: int

    def __post_init__(self) -> None:
        if wrong := {span.kind for span in self.spans} - set(KINDS):
            raise ValueError(f"a span is of one of the kinds {', '.join(KINDS)}; got {', '.join(sorted(wrong))}")
        for one, other in itertools.pairwise(self.spans):
            if one.end != other.start or other.end < other.start:
                raise ValueError(f"spans must follow each other without a gap; got {one} and then {other}")

    @property
    def total(self) -> float:
        """Seconds of its whole life."""
        return self.spans[-1].end - self.spans[0].start if self.spans else 0.0

    def seconds(self, kind: str) -> float:
        """Seconds of all spans of a kind."""
        return sum(span.seconds for span in self.spans if span.kind == kind)

    def mean(self, kind: str) -> float:
        """Mean seconds of a span of that kind; 0 if there is none."""
        lengths = [span.seconds for span in self.spans if span.kind == kind]
        return sum(lengths) / len(lengths) if lengths else 0.0

    @property
    def goodput(self) -> float:
        """The part of the time that trained for good, 0 to 1."""
        return self.seconds("training") / self.total if self.total else 0.0

    def times(self, factor: float) -> JobLife:
        """The same life on another clock: each second becomes `factor` seconds."""
        spans = (s._replace(start=s.start * factor, end=s.end * factor) for s in self.spans)
        return JobLife(tuple(spans), self.failures)
