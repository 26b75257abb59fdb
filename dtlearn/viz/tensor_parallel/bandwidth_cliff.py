"""The time of a layer over the number of ranks, inside a node and beyond it: what it computes, and what it sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from ..style import ALARM, MUTED, headline, legend_below, new_figure, style
from ..units import format_seconds

_COMPUTE, _SEND = ("#8b929c", ""), ("#009E73", "///")
_PLATE = {"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none", "alpha": 0.9}
_MEASURED: dict[str, Any] = {"marker": "D", "ms": 8, "mec": "white", "color": "#D55E00", "ls": "none", "zorder": 5}


def bandwidth_cliff(
    times: Mapping[int, tuple[float, float]],
    ranks_per_node: int,
    measured: Mapping[int, float] | None = None,
    title: str = "The time of a layer over the number of ranks",
    label: str = "",
) -> Figure:
    """Draw a bar for each number of ranks, stacked: computation below, communication on top; the fastest is marked.

    Args:
        times: {number of ranks: (seconds of computation, seconds of communication)} by a model of the cluster.
        ranks_per_node: a line stands after the last number of ranks that one node has room for.
        measured: {number of ranks: seconds}, points; may be empty.
        title: what the figure is about.
        label: which cluster and which layer; if it says "emulated link", a box in the figure does too.

    Raises:
        ValueError: no bar, seconds below 0, a point without a bar, or a node without ranks.
    """
    measured = dict(measured or {})
    seconds = [part for pair in times.values() for part in pair] + list(measured.values())
    if not times or min(seconds) < 0 or set(measured) - set(times) or ranks_per_node < 1 or not max(seconds):
        raise ValueError(
            "times of 0 or more are needed, points only where a bar is, and a node with a rank or more; got "
            f"{dict(times)}, measured {measured}, {ranks_per_node} ranks in a node"
        )
    numbers = sorted(times)
    best = min(numbers, key=lambda t: sum(times[t]))
    top = 1.3 * max([*map(sum, times.values()), *measured.values()])
    with style():
        fig = new_figure(height=4.2)
        ax = fig.add_subplot()
        for place, t in enumerate(numbers):
            compute, send = times[t]
            ax.bar(place, compute, 0.62, color=_COMPUTE[0], ec="white", lw=0.4, gid="compute")
            ax.bar(place, send, 0.62, compute, color=_SEND[0], hatch=_SEND[1], ec="white", lw=0.4, gid="send")
            words = format_seconds(compute + send) + (f"\n{100 * send / (compute + send):.0f} %" if send else "")
            words = f"fastest: {words}" if t == best else words
            weight = "bold" if t == best else "normal"
            # A point where the words would stand, which are two lines high, pushes them up.
            point = measured.get(t, 0.0)
            above = point if 0 < point - (compute + send) < 0.2 * top else compute + send
            ax.text(place, above + 0.03 * top, words, ha="center", va="bottom", size=8.5, weight=weight)
        ax.plot([numbers.index(t) for t in measured], list(measured.values()), **_MEASURED)
        for t, value in measured.items():
            at = (numbers.index(t), value)
            beside: dict[str, Any] = {"textcoords": "offset points", "va": "center", "size": 8.5, "bbox": _PLATE}
            ax.annotate(format_seconds(value), at, (9, 0), color=_MEASURED["color"], zorder=5, **beside)
        inside = sum(t <= ranks_per_node for t in numbers)
        if 0 < inside < len(numbers):
            ax.axvline(inside - 0.5, color=ALARM, lw=1.4, ls=(0, (4, 2)))
            for words, offset, side in (("in one node", -5, "right"), ("more nodes than one", 5, "left")):
                ax.annotate(
                    words, (inside - 0.5, 0.985), (offset, 0), ("data", "axes fraction"), "offset points",
                    ha=side, va="top", size=9, color=ALARM,
                )  # fmt: skip
        ax.set_xticks(range(len(numbers)), [str(t) for t in numbers])
        ax.tick_params(axis="x", length=0)
        ax.set_xlim(-0.6, len(numbers) - 0.4)
        ax.set_ylim(0, top)
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_seconds(value) if value else "0"))
        ax.set_xlabel("t, ranks of the tensor-parallel group")
        ax.set_ylabel("time of a block, forward and backward")
        ax.grid(axis="y", color=MUTED, alpha=0.25)
        headline(ax, title, label)
        handles: list[Any] = [
            Patch(fc=_COMPUTE[0], label="computation, by the model"),
            Patch(
                fc=_SEND[0], hatch=_SEND[1], ec="white", lw=0, label="communication, by the model, and its share in %"
            ),
        ]
        if measured:
            handles.append(Line2D([], [], **_MEASURED, label="measured"))
        legend_below(fig, handles, columns=3)
    return fig
