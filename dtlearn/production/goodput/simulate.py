"""A job with random failures on a clock that costs nothing: weeks of it take a millisecond."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import NamedTuple

from .intervals import expected_goodput
from .life import JobLife, LifeSpan


@dataclass(frozen=True)
class JobTimes:
    """A job, in seconds.

    Attributes:
        work: of training, all in all.
        save: of one save, during which nothing trains.
        restart: from a failure until it trains again.
        mtbf: mean between failures. They come at any time, also during saves and restarts.

    Raises:
        ValueError: times that are not positive.
    """

    work: float
    save: float
    restart: float
    mtbf: float

    def __post_init__(self) -> None:
        if min(self.work, self.save, self.mtbf) <= 0 or self.restart < 0:
            raise ValueError(f"a job needs positive times, and a restart of 0 or more; got {self}")


class IntervalRow(NamedTuple):
    """Goodput with one interval.

    Attributes:
        interval: seconds of training between saves.
        simulated: mean over the seeds.
        expected: by Daly's model.
        runs: of each seed.
    """

    interval: float
    simulated: float
    expected: float
    runs: tuple[float, ...]


def simulate(job: JobTimes, interval: float, seed: int) -> JobLife:
    """The life of a job that saves after every `interval` seconds of training, and at its end.

    Raises:
        ValueError: an interval that is not positive.
    """
    if interval <= 0:
        raise ValueError(f"the interval must be a positive number of seconds; got {interval:g}")
    draw = random.Random(seed)
    spans: list[LifeSpan] = []
    now, done, failures = 0.0, 0.0, 0
    next_failure = draw.expovariate(1 / job.mtbf)

    def add(kind: str, end: float) -> None:
        nonlocal now
        spans.append(LifeSpan(kind, now, end))
        now = end

    while job.work - done > 1e-9 * job.work:  # of a sum of seconds, less is rounding
        segment = min(interval, job.work - done)
        if next_failure >= now + segment + job.save:
            add("training", now + segment)
            add("save", now + job.save)
            done += segment
            continue
        add("lost", next_failure)
        up = False
        while not up:
            failures += 1
            next_failure = now + draw.expovariate(1 / job.mtbf)
            up = next_failure >= now + job.restart
            add("restart", now + job.restart if up else next_failure)
    return JobLife(tuple(spans), failures)


def goodput_by_interval(
    job: JobTimes, intervals: Sequence[float], seeds: Iterable[int] = range(20)
) -> list[IntervalRow]:
    """Simulated goodput beside Daly's model, for each interval; the same seeds for all."""
    rows, seeds = [], list(seeds)
    for interval in intervals:
        runs = tuple(simulate(job, interval, seed).goodput for seed in seeds)
        expected = expected_goodput(interval, job.save, job.restart, job.mtbf)
        rows.append(IntervalRow(interval, mean(runs), expected, runs))
    return rows
