"""The Gantt chart of a recorded pipeline: each rank's actions when they ran, beside a computed timeline if wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from dtlearn.runtime.record.record import Record

from .bars import Bar, computed_bars, recorded_bars
from .lanes import lanes_figure

if TYPE_CHECKING:
    from dtlearn.pipeline_parallel.checking.simulate import ScheduleTimeline


def draw_gantt(
    runs: Record | ScheduleTimeline | Mapping[str, Record | ScheduleTimeline],
    title: str = "Who did what, and when",
    label: str = "",
    step: int | None = None,
) -> Figure:
    """Draw a step of each run below each other, on one time axis in ms.

    Args:
        runs: a record whose phases are named like actions ("2F0"), or a timeline in seconds; several by name.
        title: what the figure shows.
        label: under the title, before the records' own; say "emulated stage times" where they are.
        step: which of several recorded steps, from 0; None: the shortest.

    Raises:
        ValueError: nothing to draw, or a record without a whole step.
    """
    named = runs if isinstance(runs, Mapping) else {"": runs}
    said = [
        label,
        *dict.fromkeys(f"run: {run.label}" for run in named.values() if isinstance(run, Record) and run.label),
    ]
    panels = {name: _bars(run, step) for name, run in named.items()}
    return lanes_figure(panels, title, "; ".join(filter(None, said)), "time since the step began (ms)", "{:.0f} ms")


def _bars(run: Record | ScheduleTimeline, step: int | None) -> list[Bar]:
    if isinstance(run, Record):
        return recorded_bars(run, step)
    return [bar._replace(start=1e3 * bar.start, end=1e3 * bar.end) for bar in computed_bars(run)]
