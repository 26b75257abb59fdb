"""Training state on each rank over the number of ranks, a line for each stage, with published figures as points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from ..style import ALARM, LINE_LOOKS, MUTED, headline, legend_below, new_figure, style

_GB = 1e9
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1)))


def bytes_over_ranks(
    curves: Mapping[str, Mapping[int, float]],
    printed: Mapping[str, Mapping[int, float]] | None = None,
    capacity: Mapping[str, float] | None = None,
    title: str = "Training state on each rank",
    label: str = "",
) -> Figure:
    """Draw the bytes of each stage over the number of ranks; both axes have powers of two or ten at equal distances.

    Args:
        curves: {stage: {ranks: bytes}}, at most five stages.
        printed: {stage: {ranks: bytes}}, points that a paper prints.
        capacity: bytes of memory by the GPU's name, at most three, as horizontal lines.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no curve, too many of them or of GPUs, points of a stage without a curve, or bytes of 0 or less.
    """
    printed, capacity = dict(printed or {}), dict(capacity or {})
    values = [n for line in (*curves.values(), *printed.values()) for n in line.values()] + list(capacity.values())
    if not 1 <= len(curves) <= len(LINE_LOOKS) or len(capacity) > len(_DASHES) or set(printed) - set(curves):
        raise ValueError(
            f"1 to {len(LINE_LOOKS)} curves, at most {len(_DASHES)} GPUs, and points of these curves are needed; "
            f"got {list(curves)}, {list(capacity)}, {list(printed)}"
        )
    if min(values) <= 0:
        raise ValueError(f"the axes have no place for 0 bytes or less; got {min(values)}")
    with style():
        fig = new_figure(height=4.4)
        ax = fig.add_subplot()
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        handles: list[Line2D] = []
        for (name, line), (color, dashes, marker) in zip(curves.items(), LINE_LOOKS, strict=False):
            ax.plot(list(line), [n / _GB for n in line.values()], color=color, ls=dashes, lw=1.6)
            points = printed.get(name, {})
            ax.plot(list(points), [n / _GB for n in points.values()], marker, color=color, ms=6, mec="white")
            last = max(line)
            ax.annotate(name, (last, line[last] / _GB), (8, 0), textcoords="offset points", va="center", color=color)
            handles.append(Line2D([], [], color=color, ls=dashes, marker=marker if points else "", mec="white"))
            handles[-1].set_label(name + (", points: printed" if points else ""))
        for (name, nbytes), dashes in zip(capacity.items(), _DASHES, strict=False):
            ax.axhline(nbytes / _GB, color=ALARM, lw=1.3, ls=dashes, zorder=1)
            handles.append(Line2D([], [], color=ALARM, lw=1.3, ls=dashes, label=f"{name}: {nbytes / _GB:.1f} GB"))
        numbers = sorted({n for line in curves.values() for n in line})
        ax.set_xticks(numbers, [f"{n:,}" for n in numbers])
        ax.set_xlim(numbers[0] * 0.9, numbers[-1] * 2.4)  # room for the names at the right
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_minor_formatter(NullFormatter())
        ax.set_xlabel("ranks that the state is divided over")
        ax.set_ylabel("on each rank (GB = 10⁹ bytes)")
        ax.grid(which="major", color=MUTED, alpha=0.25)
        headline(ax, title, label)
        legend_below(fig, handles, columns=3)
    return fig
