"""What a collective costs: seconds over bytes for several algorithms, and where the seconds of one size go."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator

from ..style import GRID, INK, MUTED, headline, legend_below, new_figure, style
from ..units import format_bytes, format_seconds

# Color, marker and dashes of the first, second, ... curve: each alone tells the curves apart.
_LOOKS = (
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", (0, (5, 1.5))),
    ("#009E73", "^", (0, (1.5, 1.2))),
    ("#CC79A7", "D", (0, (5, 1.5, 1, 1.5))),
    ("#7f7f7f", "v", (0, (8, 2))),
    ("#E69F00", "P", (0, (3, 1, 1, 1, 1, 1))),
)
_LATENCY, _TRANSFER = ("#E69F00", "///"), ("#0072B2", "")


@dataclass(frozen=True)
class Curve:
    """One algorithm.

    Attributes:
        name: for the legend.
        measured: seconds of some sizes in bytes, drawn as points.
        model: seconds of a size, drawn as a line; None: none is known, and the points are joined thinly.
        note: what to say of the fit, such as the words of `fit_words`.
    """

    name: str
    measured: Mapping[int, float] | None = None
    model: Callable[[float], float] | None = None
    note: str = ""


def fit_words(latency: float, bandwidth: float, residual: float) -> str:
    """A fitted line for the legend: its alpha and beta, and how far the points lie from it."""
    # Times that do not grow with the size, as on a busy machine, tell nothing about the bandwidth.
    speed = f"{format_bytes(bandwidth)}/s" if math.isfinite(bandwidth) else "no bandwidth to be seen"
    return f"{format_seconds(latency)} a message, {speed}, points differ by up to {100 * residual:.0f}%"


def cost_curves(
    curves: Sequence[Curve],
    title: str,
    label: str,
    sizes: tuple[float, float] | None = None,
    crossings: Mapping[str, float] | None = None,
) -> Figure:
    """Draw seconds over bytes, both logarithmic: latency is the flat part on the left, bandwidth the slope.

    Args:
        curves: one for each algorithm, at most six.
        title: what the figure is about.
        label: where the numbers come from ("measured here", "model of ...").
        sizes: smallest and largest bytes of the lines; None: of the points.
        crossings: bytes that are marked, with their words ("from here on the ring is faster").

    Raises:
        ValueError: no curves, more than can be told apart, or no sizes.
    """
    if not 0 < len(curves) <= len(_LOOKS):
        raise ValueError(f"a figure has 1 to {len(_LOOKS)} curves; got {len(curves)}")
    points = [n for curve in curves for n in curve.measured or {}]
    if sizes is None and not points:
        raise ValueError("give sizes: there is no measured point to take them from")
    low, high = sizes or (min(points), max(points))
    with style():
        fig = new_figure(height=4.6)
        ax = fig.add_subplot()
        handles = [_draw_curve(ax, curve, look, low, high) for curve, look in zip(curves, _LOOKS, strict=False)]
        for words, nbytes in (crossings or {}).items():
            ax.axvline(nbytes, color=MUTED, lw=0.9, ls=(0, (2, 2)), zorder=1)
            at = (nbytes, 0.02)
            ax.annotate(words, at, (4, 0), xycoords=("data", "axes fraction"), textcoords="offset points", size=8.5)
        ax.set(xscale="log", yscale="log", xlabel="size of the tensor", ylabel="time")
        ax.set_xlim(low / 1.3, high * 1.3)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_seconds(value)))
        ax.minorticks_off()
        bottom, top = ax.get_ylim()
        if top < 1000 * bottom:  # fewer than three powers of ten are too few lines to read a time from
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        ax.grid(color=GRID)
        headline(ax, title, label)
        legend_below(fig, handles, columns=1 if any(curve.note for curve in curves) else 3)
    return fig


def _draw_curve(ax: Axes, curve: Curve, look: tuple[str, str, Any], low: float, high: float) -> Line2D:
    """The curve, and its entry of the legend."""
    color, marker, dashes = look
    points = dict(sorted((curve.measured or {}).items()))
    if curve.model is not None:
        xs = np.geomspace(low, high, 80).tolist()
        ax.plot(xs, [curve.model(x) for x in xs], color=color, ls=dashes, lw=2)
    elif points:
        ax.plot(list(points), list(points.values()), color=color, ls=dashes, lw=0.9)
    ax.plot(list(points), list(points.values()), marker, color=color, ms=6.5, mec="white", mew=0.8, zorder=3)
    words = f"{curve.name}: {curve.note}" if curve.note else curve.name
    return Line2D(
        [], [], color=color, ls=dashes, lw=2 if curve.model else 0.9, marker=marker if points else "", label=words
    )


def cost_bars(
    costs: Mapping[str, Mapping[str, tuple[float, float]]], title: str, label: str, what: str = "all messages"
) -> Figure:
    """Draw what each algorithm costs at some sizes: the part that is latency, and the part that is transfer.

    Args:
        costs: {"1 MB": {"flat ring": (seconds of latency, seconds of transfer), ...}, ...}: a panel for each size.
        title: what the figure is about.
        label: the model that the numbers come from.
        what: whose latency it is, for the legend.

    Raises:
        ValueError: nothing to draw, or panels with different algorithms.
    """
    names = [list(bars) for bars in costs.values()]
    if not names or not names[0] or any(each != names[0] for each in names):
        raise ValueError(f"every size needs the same algorithms, at least one; got {names}")
    with style():
        fig = new_figure(height=1.75 + 0.42 * len(names[0]))
        axes = fig.subplots(1, len(costs), sharey=True, squeeze=False)[0]
        for ax, (size, bars) in zip(axes, costs.items(), strict=True):
            _draw_bars(ax, bars)
            ax.set_xlabel(f"time for {size}")
        headline(axes[0], title, label)
        latency = Patch(fc=_LATENCY[0], hatch=_LATENCY[1], ec="white", lw=0, label=f"latency of {what}")
        legend_below(fig, [latency, Patch(fc=_TRANSFER[0], label="bytes on the busiest link of each step")])
    return fig


def _draw_bars(ax: Axes, bars: Mapping[str, tuple[float, float]]) -> None:
    rows = range(len(bars))
    latency, transfer = ([pair[i] for pair in bars.values()] for i in (0, 1))
    ax.barh(rows, latency, color=_LATENCY[0], hatch=_LATENCY[1], ec="white", lw=0, height=0.62)
    ax.barh(rows, transfer, left=latency, color=_TRANSFER[0], height=0.62)
    longest = max(map(sum, bars.values()))
    for row, pair in zip(rows, bars.values(), strict=True):
        best = sum(pair) == min(map(sum, bars.values()))
        weight = "bold" if best else "normal"
        ax.text(
            sum(pair) + 0.02 * longest, row, format_seconds(sum(pair)), va="center", size=9, color=INK, weight=weight
        )
    ax.set_yticks(rows, list(bars))
    ax.set_ylim(len(bars) - 0.5, -0.5)
    ax.set_xlim(0, 1.28 * longest)  # room for the numbers
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_seconds(value)))
    ax.locator_params(axis="x", nbins=4)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
