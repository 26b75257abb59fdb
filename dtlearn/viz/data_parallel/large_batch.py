"""What a larger batch buys: steps to the same loss over the batch size; and learning rates over the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..style import INK, MUTED, headline, legend_below, new_figure, style
from ..units import format_quantity

# Color and dashes of the first, second, ... schedule: each alone tells them apart.
_LOOKS: tuple[tuple[str, Any], ...] = (
    ("#0072B2", "-"),
    ("#D55E00", (0, (5, 1.5))),
    ("#009E73", (0, (1.5, 1.2))),
    ("#CC79A7", (0, (5, 1.5, 1, 1.5))),
)
_PREDICTED, _WASTED = "#0072B2", "#f6e3d5"


def steps_over_batch(
    measured: Mapping[int, float],
    title: str,
    label: str,
    predicted: Callable[[float], float] | None = None,
    critical_batch: float | None = None,
    prediction: str = "predicted",
    spread: Mapping[int, tuple[float, float]] | None = None,
) -> Figure:
    """Draw the steps to a loss over the batch size, both logarithmic, beside perfect scaling.

    Perfect scaling starts at the smallest batch: twice the batch, half the steps. Between it and the curve lie the
    steps that larger batches do not save.

    Args:
        measured: steps for each batch size in samples, drawn as points; of several runs, their median.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.
        predicted: steps of a batch size, drawn as a line.
        critical_batch: a batch size to mark: where steps and samples are both twice their minimum.
        prediction: where `predicted` comes from, for the legend.
        spread: for each batch size the least and the most steps of several runs, drawn as a bar.

    Raises:
        ValueError: fewer than two batch sizes, or a batch or a number of steps that is not above 0.
    """
    points = dict(sorted(measured.items()))
    if len(points) < 2 or min(points) <= 0 or min(points.values()) <= 0:
        raise ValueError(f"steps for two batch sizes or more are needed, all above 0; got {points}")
    first, last = min(points), max(points)
    batches = np.geomspace(first, last, 100)
    perfect = points[first] * first / batches
    joined = np.exp(np.interp(np.log(batches), np.log(list(points)), np.log(list(points.values()))))
    line = np.array([predicted(b) for b in batches.tolist()]) if predicted else joined
    with style():
        fig = new_figure(height=4.2)
        ax = fig.add_subplot()
        more, words = line > perfect, "steps that larger batches do not save"
        ax.fill_between(batches, perfect, line, where=more.tolist(), color=_WASTED, lw=0, label=words)
        ax.plot(batches, perfect, color=MUTED, ls=(0, (4, 2)), label="perfect scaling")
        if predicted:
            ax.plot(batches, line, color=_PREDICTED, lw=2, label=prediction)
        for batch, (least, most) in (spread or {}).items():
            ax.plot([batch, batch], [least, most], "_-", color=INK, lw=1.2, ms=16, mew=1.2, zorder=3)
        several = "measured: median and range" if spread else "measured"
        ax.plot(
            list(points), list(points.values()), "D", color=INK, ms=5, mec="white", mew=0.8, label=several, zorder=4
        )
        ax.set(xscale="log", yscale="log", xlabel="batch size (samples)", ylabel="steps to the loss")
        if critical_batch is not None:
            _mark(ax, critical_batch)
        _plain_ticks(ax, list(points))
        ax.grid()
        headline(ax, title, label)
        legend_below(fig, ax.get_legend_handles_labels()[0], columns=4)
    return fig


def learning_rates(
    schedules: Mapping[str, Sequence[float]], title: str, label: str = "", warmup_steps: int | None = None
) -> Figure:
    """Draw learning rates over the steps.

    Args:
        schedules: the rate of each step, by name; at most four.
        title: what the figure is about.
        label: what else to say, printed under the title.
        warmup_steps: the end of the warm-up, which is shaded.

    Raises:
        ValueError: no schedule, more than four, or one without steps.
    """
    if not 0 < len(schedules) <= len(_LOOKS) or not all(len(rates) for rates in schedules.values()):
        raise ValueError(f"1 to {len(_LOOKS)} schedules are needed, with a step or more each; got {len(schedules)}")
    with style():
        fig = new_figure(height=3.4)
        ax = fig.add_subplot()
        for (name, rates), (color, dashes) in zip(schedules.items(), _LOOKS, strict=False):
            ax.plot(range(len(rates)), rates, color=color, ls=dashes, lw=2, label=name)
        ax.set_ylim(0, 1.08 * max(max(rates) for rates in schedules.values()))
        ax.set_xlim(0, max(len(rates) for rates in schedules.values()) - 1 or 1)
        if warmup_steps:
            ax.axvspan(0, warmup_steps, color="#eef1f4", lw=0, zorder=0)
            ax.annotate(
                "warm-up", (warmup_steps / 2, 0), (0, 5), textcoords="offset points", ha="center", size=9, color=MUTED
            )
        ax.set(xlabel="step", ylabel="learning rate")
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        ax.grid(axis="y")
        headline(ax, title, label)
        legend_below(fig, ax.get_legend_handles_labels()[0], columns=4)
    return fig


def _mark(ax: Axes, critical_batch: float) -> None:
    ax.axvline(critical_batch, color=MUTED, lw=0.9, ls=(0, (2, 2)), zorder=1)
    ax.annotate(
        f"critical batch size: {format_quantity(round(critical_batch) if critical_batch >= 10 else critical_batch)}",
        (critical_batch, 1),
        (5, -12),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        size=9,
    )


def _plain_ticks(ax: Axes, batches: Sequence[int]) -> None:
    """Label the axes with the measured batch sizes, and with steps as plain numbers."""
    ax.set_xticks(batches, [f"{b:,}" for b in batches])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_locator(NullLocator())
    bottom, top = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(subs=(1,) if top > 1000 * bottom else (1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
