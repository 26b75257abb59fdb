"""How near a step with emulated stage times comes to its schedule's theory, on ranks that sleep: for `pipeline`."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ....runtime.words import format_seconds

if TYPE_CHECKING:
    from ....models.in_turns import Times
    from ....pipeline_parallel.checking.simulate import StageTimes
    from ....pipeline_parallel.schedule import Schedule

EMULATED = ("gpipe", "1f1b", "interleaved", "zb_h1", "zbv")
EMULATED_RANKS, EMULATED_MICROBATCHES = 4, 16


class Emulated(NamedTuple):
    """A schedule on ranks that sleep in place of computing.

    Attributes:
        theory: seconds of a step, simulated.
        measured: of each round, on its slowest rank.
        bubble: idle time / useful time in theory.
    """

    theory: float
    measured: tuple[float, ...]
    bubble: float

    @property
    def efficiency(self) -> float:
        """Theory's makespan / the median of the measured ones: 1 if nothing costs time but the stages."""
        return self.theory / statistics.median(self.measured)

    @property
    def measured_bubble(self) -> float:
        """The bubble, if only what the stages were told to take is useful time."""
        return (1 + self.bubble) / self.efficiency - 1


def emulated_schedule(name: str, unit: float) -> tuple[Schedule, StageTimes]:
    """A schedule with stage times that make F, I and W of a rank's whole part take `unit` seconds each."""
    from ....pipeline_parallel.checking.simulate import StageTimes
    from ....pipeline_parallel.schedules.make import make_schedule

    schedule = make_schedule(name, EMULATED_RANKS, EMULATED_MICROBATCHES)
    chunks = schedule.num_stages // EMULATED_RANKS
    return schedule, StageTimes.equal_parts(chunks, forward=unit, inputs=unit, weights=unit)


def beside_theory(name: str, unit: float, seconds: tuple[float, ...]) -> Emulated:
    """Measured seconds of a schedule's steps, and what the simulator says."""
    from ....pipeline_parallel.checking.simulate import simulate

    timeline = simulate(*emulated_schedule(name, unit))
    return Emulated(timeline.makespan, seconds, timeline.idle_to_useful)


def emulated_on_rank(names: tuple[str, ...], unit: float, rounds: int) -> Times:
    """On each rank: seconds of a step of each schedule, in turns, with stages that sleep. Nothing is recorded."""
    import torch
    import torch.distributed as dist

    from ....models.in_turns import time_in_turns
    from ....pipeline_parallel.emulated import WIDTH, emulated_stages, mean_of_outputs
    from ....pipeline_parallel.runner.runner import PipelineRunner

    inputs = torch.ones(EMULATED_MICROBATCHES, WIDTH)
    ways: dict[str, Callable[[], object]] = {}
    for name in names:
        schedule, times = emulated_schedule(name, unit)
        stages = emulated_stages(schedule, times, dist.get_rank())
        seconds = {number: stage.seconds for number, stage in stages.items()}
        runner = PipelineRunner(schedule, stages, mean_of_outputs)
        for stage in stages.values():
            stage.seconds = (0.0, 0.0, 0.0)  # for the first step, which tells shapes
        runner.step(inputs, inputs)
        for number, stage in stages.items():
            stage.seconds = seconds[number]
        ways[name] = partial(runner.step, inputs, inputs)
    return time_in_turns(ways, rounds, warm=0)


def emulated_rows(emulated: dict[str, Emulated]) -> list[list[str]]:
    """The rows of a table, with its heading."""
    rows = [["schedule", "theory", "measured", "best", "theory / measured", "bubble", "measured"]]
    for name, found in emulated.items():
        seconds = (found.theory, statistics.median(found.measured), min(found.measured))
        bubbles = (f"{found.bubble:.1%}", f"{found.measured_bubble:.1%}")
        rows.append([name, *map(format_seconds, seconds), f"{found.efficiency:.1%}", *bubbles])
    return rows
