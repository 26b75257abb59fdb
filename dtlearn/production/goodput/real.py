"""A job on real ranks with real deaths: killed at seeded moments, restarted from its newest checkpoint.

Its clock is fast: a step takes milliseconds, a save tenths of a second, and failures come every few seconds. Deaths are
drawn as time of training since the last start, so that no restart is hit.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from typing import NamedTuple

from dtlearn.runtime.machine.run_folder import run_directory

from ..faults.on_run_ranks import restart_on_run_ranks
from ..faults.plan import JobPlan
from ..faults.story import StoryEvent, StoryLog, read_events
from .intervals import expected_goodput
from .life import JobLife, LifeSpan


class LivedJob(NamedTuple):
    """What became of a real job.

    Attributes:
        life: its spans.
        losses: {step: loss}, of the last time that each step was made.
        interval: seconds of training between saves, as planned.
        expected: goodput by the model, with the save and the restart that were measured.
        error: why it was given up; "" if it made all its steps.
    """

    life: JobLife
    losses: dict[int, float]
    interval: float
    expected: float
    error: str


def live(
    *,
    ranks: int = 2,
    steps: int = 240,
    step_seconds: float = 0.01,
    save_seconds: float = 0.1,
    save_every: int = 60,
    mtbf: float = 1.5,
    seed: int = 0,
    max_failures: int = 8,
) -> LivedJob:
    """Train on real ranks under the course's own restart, killing one at seeded moments.

    Args:
        ranks: of the job.
        steps, step_seconds: its work.
        save_every, save_seconds: steps between saves, and what a save takes at least.
        mtbf: mean seconds of training until the next death.
        seed: of when, and which rank.
        max_failures: no more deaths than this.

    Raises:
        ValueError: times that are not positive.
    """
    deaths = draw_deaths(ranks, mtbf, seed, max_failures)
    interval = save_every * step_seconds
    expected_goodput(interval, save_seconds, 0.0, mtbf)  # refuses what is no time before anything is started
    with run_directory() as folder:
        log = StoryLog(folder, -1, 0)
        plan = JobPlan(
            str(folder),
            steps=steps,
            save_every=save_every,
            step_seconds=step_seconds,
            save_seconds=save_seconds,
            group_timeout=20.0,
            deaths=deaths,
        )
        begun = time.monotonic()
        error = restart_on_run_ranks(plan, ranks, log, max_restarts=max_failures)
        events = read_events(folder, begun)
        log.close()
    life = life_of(events, save_every)
    losses = {e.step: e.loss for e in events if e.what == "step" and e.step is not None and e.loss is not None}
    save, restart = life.mean("save") or save_seconds, life.mean("restart")
    expected = expected_goodput(interval, save, restart, mtbf, failures_in_restart=False)
    return LivedJob(life, losses, interval, expected, error)


def draw_deaths(ranks: int, mtbf: float, seed: int, most: int) -> tuple[tuple[int, float], ...]:
    """Which rank dies in each attempt, and after how many seconds of training."""
    draw = random.Random(seed)
    return tuple((draw.randrange(ranks), draw.expovariate(1 / mtbf)) for _ in range(most))


def life_of(events: Sequence[StoryEvent], save_every: int) -> JobLife:
    """The spans of a job, from what its ranks wrote down. It begins when the first attempt begins to train.

    An attempt that was killed ends with its "fault"; what came after its last save is lost.

    Args:
        events: by time.
        save_every: steps between saves, to count the steps of a span.
    """
    spans: list[LifeSpan] = []
    starts = [e for e in events if e.what == "resumed" and e.rank == 0]
    ends = {e.attempt: e.seconds for e in events if e.what == "finished" and e.rank == 0}
    ends |= {e.attempt: e.seconds for e in events if e.what == "fault"}
    for resumed, following in itertools.zip_longest(starts, starts[1:]):
        kept = following.step or 0 if following is not None else 0  # a death may come after the file, before the word
        now, step = resumed.seconds, resumed.step or 0
        if spans:
            spans.append(LifeSpan("restart", spans[-1].end, now))
        mine = [e for e in events if e.attempt == resumed.attempt and e.rank == 0]
        end = max(now, ends.get(resumed.attempt, mine[-1].seconds))
        # One that says its "fault" lives for a moment longer, on a busy machine for long enough to save.
        end = max([end, *(e.seconds for e in mine if e.what in ("saving", "saved") and (e.step or 0) <= kept)])
        saving = [e for e in mine if e.what == "saving" and e.seconds <= end]
        saved = {e.step: e.seconds for e in mine if e.what == "saved" and e.seconds <= end}
        for begin in saving:
            at = begin.step or 0
            if at in saved or at <= kept:
                spans.append(LifeSpan("training", now, begin.seconds, at - step))
                now, step = saved.get(at, end), at
                spans.append(LifeSpan("save", begin.seconds, now))
        failed = any(e.what == "fault" and e.attempt == resumed.attempt for e in events)
        made = sum(e.what == "step" and e.seconds >= now and e.seconds <= end for e in mine)
        if failed or made:
            spans.append(LifeSpan("lost" if failed else "training", now, end, made))
    return JobLife(tuple(spans), sum(e.what == "fault" for e in events))
