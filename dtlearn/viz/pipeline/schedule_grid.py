"""A schedule as a grid: a lane for each rank, a box for each action, as long as it takes. It draws any schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from .bars import computed_bars, stages_by_rank
from .lanes import lanes_figure

if TYPE_CHECKING:
    from dtlearn.pipeline_parallel.checking.simulate import ScheduleTimeline
    from dtlearn.pipeline_parallel.schedule import Schedule


def draw_schedule(
    schedule: Schedule | ScheduleTimeline | Mapping[str, Schedule | ScheduleTimeline],
    title: str = "Who does what, and when",
    label: str = "",
    unit: str | None = None,
) -> Figure:
    """Draw schedules below each other, on one time axis.

    Args:
        schedule: one, or several by name. A schedule has no times: F, I and W take 1 and B takes 2, each divided by the
            number of stages that a rank has, and a transfer takes 0. For other times pass what `simulate` returns.
        title: what the figure shows.
        label: words under the title.
        unit: of the time axis; None: the forward pass of a stage, or of 1/p of the model if a rank has several stages.

    Raises:
        ValueError: nothing to draw.
        ScheduleError: a schedule that cannot run to its end.
    """
    panels = {name: computed_bars(each) for name, each in _named(schedule).items()}
    if unit is None:
        chunks = max(len(stages) for bars in panels.values() for stages in stages_by_rank(bars).values())
        unit = f"1 is the forward pass of {'a stage' if chunks == 1 else '1/p of the model'}"
    return lanes_figure(panels, title, label, f"time ({unit})", "{:.4g} long")


def _named(
    schedule: Schedule | ScheduleTimeline | Mapping[str, Schedule | ScheduleTimeline],
) -> Mapping[str, Schedule | ScheduleTimeline]:
    return schedule if isinstance(schedule, Mapping) else {"": schedule}
