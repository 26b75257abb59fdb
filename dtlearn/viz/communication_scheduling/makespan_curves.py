"""How long a step takes over the size of a partition: latency to its left, nothing to overlap to its right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from ..style import ALARM, INK, LINE_LOOKS, MUTED, headline, legend_below, new_figure, style
from ..units import format_bytes, format_seconds

_PLATE = {"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none", "alpha": 0.9}


def makespan_curves(
    curves: Mapping[str, Mapping[int, float]],
    measured: Mapping[str, Mapping[int, float]] | None = None,
    knee: float | None = None,
    bound: float | None = None,
    chosen: tuple[str, int] | None = None,
    title: str = "The makespan over the size of a partition",
    label: str = "",
) -> Figure:
    """Draw the makespan, from the start of backward to the end of forward, over the bytes of a partition.

    Args:
        curves: {policy: {bytes of a partition: seconds by the simulator}}, lines; at most five.
        measured: {policy: {bytes of a partition: seconds}}, points of the same colour.
        knee: bytes whose transfer takes as long as its latency, a line; None: no line.
        bound: seconds that no policy can go below, a line; None: no line.
        chosen: a policy and a size that are marked, with their makespan; None: the best sizes are.
        title: what the figure is about.
        label: which link and model; if it says "emulated link", a box in the figure does too.

    Raises:
        ValueError: no curve, too many, an empty one, points without a curve, or a choice that is not on its curve.
    """
    points = {name: dict(of_sizes) for name, of_sizes in (measured or {}).items()}
    if not 0 < len(curves) <= len(LINE_LOOKS) or not all(curves.values()) or set(points) - set(curves):
        raise ValueError(
            f"1 to {len(LINE_LOOKS)} curves with sizes are needed, and points of the same names; got "
            f"{list(curves)}, measured {list(points)}"
        )
    if chosen is not None and chosen[1] not in curves.get(chosen[0], {}):
        raise ValueError(f"chosen must be a policy and one of its sizes; got {chosen!r}")
    sizes = sorted({size for curve in (*curves.values(), *points.values()) for size in curve})
    seconds = [value for curve in (*curves.values(), *points.values()) for value in curve.values()]
    # Where latency is nearly all, a curve leaves the figure: what it is about are the sizes that one would choose.
    at_most = max(2 * min(seconds), *(curve[max(curve)] for curve in curves.values()))
    at_most = max(at_most, curves[chosen[0]][chosen[1]]) if chosen else at_most
    with style():
        fig = new_figure(height=4.2)
        ax = fig.add_subplot()
        handles: list[Any] = []
        for (name, curve), (color, dashes, marker) in zip(curves.items(), LINE_LOOKS, strict=False):
            xs = sorted(curve)
            (line,) = ax.plot(xs, [curve[x] for x in xs], color=color, ls=dashes, lw=2, label=name)
            handles.append(line)
            if own := points.get(name):
                look: dict[str, Any] = {"color": color, "marker": marker, "ls": "none", "ms": 7, "mec": "white"}
                ax.plot(list(own), list(own.values()), **look, zorder=4)
                handles.append(Line2D([], [], **look, label=f"{name}, measured"))
        for name, size in [chosen] if chosen else _best(curves):
            ax.plot(size, curves[name][size], "o", ms=13, mfc="none", mec=INK, mew=1.5, zorder=5)
            words = f"{'' if chosen else 'best: '}{format_bytes(size)}, {format_seconds(curves[name][size])}"
            at = (size, curves[name][size])
            below = not any(of_sizes.get(size, at[1]) < at[1] for of_sizes in points.values())  # there is a point
            ax.annotate(
                words, at, (0, -11 if below else 11), textcoords="offset points", ha="center",
                va="top" if below else "bottom", size=9, weight="bold", bbox=_PLATE, zorder=6,
            )  # fmt: skip
        if knee is not None:
            ax.axvline(knee, color=MUTED, lw=1, ls=(0, (2, 2)), zorder=1)
            ax.annotate(
                "latency = transfer", (knee, 0.98), (4, 0), ("data", "axes fraction"), "offset points",
                va="top", size=9, color=MUTED,
            )  # fmt: skip
        if bound is not None:
            handles.append(ax.axhline(bound, color=ALARM, lw=1.3, ls=(0, (4, 2)), label="no order takes less"))
        _axes(ax, sizes, 1.12 * min(max(seconds), at_most))
        headline(ax, title, label)
        legend_below(fig, handles, columns=3)
    return fig


def _best(curves: Mapping[str, Mapping[int, float]]) -> Sequence[tuple[str, int]]:
    """The fastest size of each curve that has one: the largest, where several are."""
    found = []
    for name, curve in curves.items():
        least = min(curve.values())
        if max(curve.values()) > 1.001 * least:
            found.append((name, max(size for size, seconds in curve.items() if seconds == least)))
    return found


def _axes(ax: Any, sizes: Sequence[int], top: float) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xlim(sizes[0] / 1.2, sizes[-1] * 1.2)
    ax.set_ylim(0, top)
    every = max(1, -(-len(sizes) // 9))
    ax.set_xticks(sizes[::every], [format_bytes(size) for size in sizes[::every]])
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_seconds(value) if value else "0"))
    ax.set_xlabel("bytes of a partition")
    ax.set_ylabel("makespan")
    ax.grid(color=MUTED, alpha=0.25)
