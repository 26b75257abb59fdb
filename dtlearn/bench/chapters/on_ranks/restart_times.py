"""From the death of a rank to the next training step, under torchrun and under the course's own restart."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....runtime.words import format_seconds
from ...figures import aligned

if TYPE_CHECKING:
    from ....production.faults.story import FaultStory

LAUNCHERS = ("torchrun", "run_ranks")
PARTS = ("noticed", "in a group", "training")
_TIMEOUT = 600.0


@dataclass(frozen=True)
class RestartTimes:
    """Seconds from the kill, of each round.

    Attributes:
        ranks: of the job.
        seconds: {launcher: {"noticed": by the launcher; "in a group": the last rank of the next start; "training": the
            first step of that}}.
        losses: {launcher: the losses of each round's job}, which must all be the same.
    """

    ranks: int
    seconds: dict[str, dict[str, tuple[float, ...]]]
    losses: dict[str, tuple[dict[int, float], ...]]

    @property
    def equal(self) -> bool:
        """Whether all jobs had the same losses, to the last bit: a restart must not change what is learned."""
        every = [losses for rounds in self.losses.values() for losses in rounds]
        return all(losses == every[0] for losses in every)

    @property
    def times_own(self) -> float:
        """How many times as long torchrun takes as the course's own restart: the median over the rounds."""
        pairs = zip(self.seconds["torchrun"]["training"], self.seconds["run_ranks"]["training"], strict=True)
        return statistics.median(theirs / own for theirs, own in pairs)


def measure_restarts(ranks: int, rounds: int) -> RestartTimes:
    """Kill a rank in each round, under each launcher in turn.

    Raises:
        RuntimeError: a job did not survive; the message says why.
    """
    from ....production.faults.scenarios import run_scenario

    seconds: dict[str, dict[str, list[float]]] = {name: {part: [] for part in PARTS} for name in LAUNCHERS}
    losses: dict[str, list[dict[int, float]]] = {name: [] for name in LAUNCHERS}
    for _ in range(rounds):
        for launcher in LAUNCHERS:
            story = run_scenario("kill", launcher=launcher, ranks=ranks, timeout=_TIMEOUT)
            if story.error:
                raise RuntimeError(f"a job under {launcher} did not survive the death of a rank: {story.error}")
            for part, value in parts_of(story).items():
                seconds[launcher][part].append(value)
            losses[launcher].append(story.losses)
    return RestartTimes(
        ranks,
        {name: {part: tuple(values) for part, values in parts.items()} for name, parts in seconds.items()},
        {name: tuple(rounds_of) for name, rounds_of in losses.items()},
    )


def parts_of(story: FaultStory) -> dict[str, float]:
    """When, after the fault, it was noticed by the launcher, all ranks were in a group again, and a step was made."""
    assert story.fault is not None and story.restart_seconds is not None
    noticed = next(d.seconds for d in story.detections if d.noticer == "launcher")
    joined = max(e.seconds for e in story.select("joined", attempt=1)) - story.fault.seconds
    return dict(zip(PARTS, (noticed, joined, story.restart_seconds), strict=True))


def table_of(times: RestartTimes) -> list[str]:
    """The result as lines."""
    rows = [["medians from the kill", *PARTS]]
    for name in LAUNCHERS:
        medians = [statistics.median(times.seconds[name][part]) for part in PARTS]
        rows.append([name, *map(format_seconds, medians)])
    return [
        f"A rank of {times.ranks} is killed, and all start again from the newest checkpoint.",
        aligned(rows),
        f"torchrun takes {times.times_own:.1f}x as long: each of its ranks is a new interpreter that loads torch, and "
        "run_ranks forks them.",
        f"The same losses in all rounds: {'yes' if times.equal else 'NO'}.",
    ]
