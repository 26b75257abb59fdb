"""Why more ranks are not simply faster: the time of a step is computation shared out, plus communication added."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ..style import ALARM, INK, MUTED, headline, legend_below, new_figure, style
from ..units import format_ratio, format_seconds

_COMPUTE, _COMMUNICATE = ("#56B4E9", ""), ("#D55E00", "///")


def speedup(
    compute: float,
    communication: Callable[[int], float],
    ranks: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    measured: Mapping[int, float] | None = None,
    label: str = "model",
    title: str = "Speed-up with N ranks",
) -> Figure:
    """Draw T(N) = compute / N + communication(N): the time of a step, and the speed-up T(1) / T(N).

    Args:
        compute: seconds of computation of one step on one rank.
        communication: seconds of communication of one step, given N.
        ranks: the values of N to draw, rising.
        measured: measured seconds of a step for some N, drawn as points; their speed-up is against measured[1], or
            against the model's T(1) if N = 1 was not measured.
        label: where the numbers come from, printed under the title.
        title: what the figure is about.

    Raises:
        ValueError: `ranks` is empty, not rising or below 1, or a time is negative.
    """
    sizes = list(ranks)
    if not sizes or sizes[0] < 1 or any(b <= a for a, b in itertools.pairwise(sizes)):
        raise ValueError(f"ranks must be rising numbers from 1 up, not {sizes}")
    sent = [communication(n) for n in sizes]
    if compute <= 0 or min(sent) < 0:
        raise ValueError("compute must be above 0 seconds, and communication(N) must not be negative")
    alone = compute + communication(1)
    gains = [alone / (compute / n + c) for n, c in zip(sizes, sent, strict=True)]
    points = dict(measured or {})
    with style():
        fig = new_figure(height=3.8)
        left, right = fig.subplots(1, 2)
        _draw_times(left, sizes, compute, sent, points)
        _draw_gains(right, sizes, gains, {n: points.get(1, alone) / t for n, t in points.items()})
        headline(left, title, label)
        legend_below(fig, [*left.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]])
    return fig


def _draw_times(ax: Axes, sizes: list[int], compute: float, sent: list[float], points: dict[int, float]) -> None:
    where = range(len(sizes))
    shares = [compute / n for n in sizes]
    bar: dict[str, Any] = {"width": 0.62, "edgecolor": "white", "linewidth": 0}
    ax.bar(where, shares, color=_COMPUTE[0], label="computation / N", **bar)
    ax.bar(where, sent, bottom=shares, color=_COMMUNICATE[0], hatch=_COMMUNICATE[1], label="communication(N)", **bar)
    inside = {n: t for n, t in points.items() if n in sizes}
    if inside:
        ax.plot([sizes.index(n) for n in inside], list(inside.values()), "D", color=INK, markersize=6, label="measured")
    ax.set_xticks(where, [str(n) for n in sizes])
    ax.tick_params(axis="x", length=0)
    ax.set_xlabel("number of ranks N")
    ax.set_ylabel("time of one step")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_seconds(value)))
    ax.set_ylim(0, 1.06 * max([*(a + b for a, b in zip(shares, sent, strict=True)), *inside.values()]))
    ax.grid(axis="y")


def _draw_gains(ax: Axes, sizes: list[int], gains: list[float], points: dict[int, float]) -> None:
    ax.plot(sizes, sizes, color=MUTED, linestyle=(0, (4, 2)), label="ideal: N times as fast")
    ax.plot(sizes, gains, "-o", color="#0072B2", markersize=5, label="T(1) / T(N)")
    if points:
        ax.plot(list(points), list(points.values()), "D", color=INK, markersize=6)
    best = max(range(len(sizes)), key=lambda i: gains[i])
    # A peak inside the range is the lesson: from there on, more ranks are slower.
    if best < len(sizes) - 1:
        ax.annotate(
            f"best: {format_ratio(gains[best])} at N = {sizes[best]}",
            (sizes[best], gains[best]),
            (0, -30),
            textcoords="offset points",
            ha="center",
            size=9,
            color=ALARM,
            arrowprops={"arrowstyle": "-", "color": ALARM, "linewidth": 0.8},
        )
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xticks(sizes, [str(n) for n in sizes])
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_ratio(value)))
    ax.minorticks_off()
    ax.set_xlabel("number of ranks N")
    ax.set_ylabel("speed-up")
    ax.grid()
