"""What a draft is: a schedule or not, right or wrong and why, and what it costs. Never raises: people type anything."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dtlearn.pipeline_parallel import Schedule, ScheduleTimeline, StageTimes, parse_schedule, simulate, validate

from .draft import Draft, TypedTimes

MAX_ACTIONS = 1000  # more take seconds to draw, and nobody reads them
MAX_MS = 10_000


@dataclass(frozen=True)
class Assessment:
    """What was found out about a draft.

    Attributes:
        problems: why the text is no schedule, or what is wrong with it, in words; empty if it can be run.
        schedule: the text as a schedule; None if it is none.
        times: the stage times in seconds; None if they are none.
        transfer: seconds until another rank has a result.
        timeline: when everything happens, in seconds; of a schedule that gets stuck, as far as it goes. None if nothing
            happens.
    """

    problems: tuple[str, ...]
    schedule: Schedule | None = None
    times: StageTimes | None = None
    transfer: float = 0.0
    timeline: ScheduleTimeline | None = None

    @property
    def is_valid(self) -> bool:
        """Whether it can be run."""
        return not self.problems

    @property
    def chunks(self) -> float:
        """Stages of a rank, v; the mean, where ranks have different numbers."""
        return self.schedule.num_stages / self.schedule.num_ranks if self.schedule else 1.0


def assess(draft: Draft) -> Assessment:
    """Read a draft, validate it, and simulate it where it is right."""
    try:
        schedule = parse_schedule(draft.text, name="the schedule")
    except ValueError as error:
        return Assessment((str(error),))
    if (size := sum(map(len, schedule.orders))) > MAX_ACTIONS:
        return Assessment((f"it has {size:,} actions, and the editor takes {MAX_ACTIONS:,} at most",))
    problems = tuple(finding.message for finding in validate(schedule))
    try:
        times, transfer = read_times(draft.times, schedule)
    except ValueError as error:
        return Assessment((*problems, str(error)), schedule)
    timeline = simulate(schedule, times, transfer=transfer, partial=True)
    if timeline.makespan == 0:
        problems = problems or ("no action takes any time",)
        return Assessment(problems, schedule, times, transfer)
    return Assessment(problems, schedule, times, transfer, timeline)


def read_times(times: TypedTimes, schedule: Schedule) -> tuple[StageTimes, float]:
    """The typed milliseconds in seconds: of each stage, and of a transfer.

    One number is the time of a p-th of the model, so a stage takes a v-th of it where ranks have v stages. Several are
    the times of the stages themselves.

    Raises:
        ValueError: a field without a number, with a number below 0 or above 10 s, or with another number of them than
            there are stages.
    """
    share = schedule.num_ranks / schedule.num_stages
    stages: list[float | tuple[float, ...]] = []
    for name, text in (("F", times.forward), ("I", times.inputs), ("W", times.weights)):
        numbers = _numbers(name, text)
        if len(numbers) not in (1, schedule.num_stages):
            raise ValueError(
                f"the times of {name}: expected 1 number, or {schedule.num_stages}, one for each stage; "
                f"got {len(numbers)}"
            )
        stages.append(numbers[0] * share if len(numbers) == 1 else tuple(numbers))
    transfer = _numbers("a transfer", times.transfer)
    if len(transfer) != 1:
        raise ValueError(f"the time of a transfer is one number; got {len(transfer)}")
    return StageTimes(*stages), transfer[0]


def _numbers(name: str, text: str) -> list[float]:
    """Milliseconds as they were typed, in seconds."""
    numbers = []
    for word in text.replace(",", " ").split() or [""]:
        try:
            number = float(word)
        except ValueError:
            number = math.nan
        if not 0 <= number <= MAX_MS:
            raise ValueError(f"the times of {name}: expected ms, numbers from 0 to {MAX_MS:,}; got {word!r}")
        numbers.append(number / 1e3)
    return numbers
