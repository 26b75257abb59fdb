"""What a planner says of layouts beside what was measured on them: seconds of a step, and gigabytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..style import INK, MUTED, headline_above, legend_below, new_figure, style

if TYPE_CHECKING:
    from dtlearn.planner.score.bloom_topologies import PlannedLayout, TimedLayout

MEASURED, PREDICTED = "#0072B2", "#D55E00"
OUT = "out of memory"


def timed_layouts(
    plans: Sequence[PlannedLayout], calibrated_on: TimedLayout, title: str = "", label: str = ""
) -> Figure:
    """Draw a row for each layout, the fastest measured one on top: seconds to the left, gigabytes to the right.

    Args:
        plans: of the layouts.
        calibrated_on: the row that set the planner's efficiency; it is marked.
        title, label: of the figure.

    Raises:
        ValueError: no layout, or none that was measured.
    """
    rows = sorted(plans, key=_order)
    if not rows or not rows[0].timed.seconds:
        raise ValueError("at least one layout that was measured is needed")
    with style():
        figure = new_figure(1.6 + 0.27 * len(rows))
        headline_above(figure, title or "Predicted beside measured", label)
        times, memory = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        for place, row in enumerate(rows):
            _pair(times, place, row.timed.seconds, row.seconds)
            _pair(memory, place, row.timed.gigabytes, row.gigabytes)
            if row.timed.seconds is None:
                times.text(_first(rows), place, OUT, va="center", ha="left", color=INK)
        capacity = rows[0].run.cluster.memory / 1e9
        memory.axvline(capacity, color=INK, linewidth=1)
        memory.text(capacity, -0.9, f"{capacity:.0f} GB", ha="center", va="bottom", color=INK)
        names = [row.timed.name + (" (calibrates)" if row.timed == calibrated_on else "") for row in rows]
        times.set_yticks(range(len(rows)), names)
        times.set_ylim(len(rows) - 0.4, -1.0)
        times.set_xlabel("seconds of a step")
        memory.set_xlabel("GB on the fullest GPU")
        for axes in (times, memory):
            axes.grid(axis="x")
            axes.tick_params(axis="y", length=0)
        handles = [
            Line2D([], [], color=MEASURED, marker="o", linestyle="", label="measured"),
            Line2D([], [], color=PREDICTED, marker="D", markerfacecolor="white", linestyle="", label="predicted"),
        ]
        legend_below(figure, handles)
    return figure


def timed_words(plans: Sequence[PlannedLayout], calibrated_on: TimedLayout) -> str:
    """The picture in words."""
    rows = sorted(plans, key=_order)
    parts = []
    for row in rows:
        measured = f"{row.timed.seconds:.0f} s" if row.timed.seconds else OUT
        fits = f"{row.gigabytes:.0f} GB" if row.fits else f"{row.gigabytes:.0f} GB, too much"
        parts.append(f"{row.timed.name}: measured {measured}, predicted {row.seconds:.0f} s and {fits}")
    return f"Layouts in the order of their measured seconds; {calibrated_on.name} calibrates. " + "; ".join(parts) + "."


def _order(row: PlannedLayout) -> tuple[bool, float]:
    """The sort key of a row: the fastest first; what ran out of memory last, by its predicted gigabytes."""
    return row.timed.seconds is None, row.timed.seconds or row.gigabytes


def _pair(axes: Axes, place: int, measured: float | None, predicted: float) -> None:
    if measured is not None:
        axes.plot([measured, predicted], [place, place], color=MUTED, linewidth=1, zorder=1)
        axes.plot(measured, place, "o", color=MEASURED, zorder=3)
    axes.plot(predicted, place, "D", color=PREDICTED, markerfacecolor="white", zorder=2)


def _first(rows: Sequence[PlannedLayout]) -> float:
    """Where the words for layouts that did not run begin: to the right of all their predicted seconds."""
    return 1.02 * max(row.seconds for row in rows if row.timed.seconds is None)
