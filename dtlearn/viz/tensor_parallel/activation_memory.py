"""Activations that each rank keeps for the backward pass, over the number of ranks: by formula, and measured."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..memory.categories import MB
from ..style import LINE_LOOKS, MUTED, headline, legend_below, new_figure, style

_LINE = 0.055  # height of a name at the end of a line, as a share of the axes
Bytes = Mapping[str, Mapping[int, float]]


def activation_memory(
    formula: Bytes,
    measured: Bytes | None = None,
    floor: tuple[str, float] | None = None,
    title: str = "Activations of a layer over the number of ranks",
    label: str = "",
) -> Figure:
    """Draw bytes of each way of dividing a layer; the numbers of ranks stand at equal distances.

    Args:
        formula: {way: {number of ranks: bytes}}, a line each, at most five.
        measured: the same, of any of these ways, as points; may be empty.
        floor: what is on every rank however many there are: its name and bytes, a horizontal line.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no line, too many, points of a way or of a number of ranks without a formula, or bytes below 0.
    """
    measured = dict(measured or {})
    values = [n for line in (*formula.values(), *measured.values()) for n in line.values()]
    strays = [way for way, points in measured.items() if set(points) - set(formula.get(way, {}))]
    if not 1 <= len(formula) <= len(LINE_LOOKS) or strays or not values or min(values) < 0:
        raise ValueError(
            f"1 to {len(LINE_LOOKS)} lines are needed, with bytes of 0 or more, and points of these lines only; got "
            f"{list(formula)}, points of {list(measured)}"
        )
    numbers = sorted({t for line in formula.values() for t in line})
    top = 1.12 * max(values) / MB or 1
    with style():
        fig = new_figure(height=4.0)
        ax = fig.add_subplot()
        handles = []
        ends = _spread({way: line[max(line)] / MB / top for way, line in formula.items()})
        for (way, line), (color, dashes, marker) in zip(formula.items(), LINE_LOOKS, strict=False):
            xs = [numbers.index(t) for t in sorted(line)]
            ax.plot(xs, [line[t] / MB for t in sorted(line)], color=color, ls=dashes, lw=1.8)
            points = dict(sorted(measured.get(way, {}).items()))
            at = [numbers.index(t) for t in points]
            ax.plot(at, [n / MB for n in points.values()], marker, color=color, mec="white", ms=8, zorder=4)
            place = (1.0, ends[way])
            ax.annotate(way, place, (4, 0), "axes fraction", "offset points", va="center", color=color, size=9)
            handles.append(Line2D([], [], color=color, ls=dashes, marker=marker if points else "", mec="white"))
            handles[-1].set_label(f"{way}{', points: measured' if points else ''}")
        if floor:
            ax.axhline(floor[1] / MB, color=MUTED, lw=1.2, ls=(0, (1, 2)), zorder=1)
            handles.append(Line2D([], [], color=MUTED, lw=1.2, ls=(0, (1, 2)), label=floor[0]))
        ax.set_xticks(range(len(numbers)), [str(t) for t in numbers])
        ax.set_xlim(-0.2, len(numbers) - 1 + 0.08)
        ax.set_ylim(0, top)
        ax.set_xlabel("t, ranks of the tensor-parallel group")
        ax.set_ylabel("kept by one rank (MB = 10⁶ bytes)")
        ax.grid(color=MUTED, alpha=0.25)
        headline(ax, title, label)
        legend_below(fig, handles, columns=2)
    return fig


def _spread(heights: Mapping[str, float]) -> dict[str, float]:
    """The heights by name, moved up where two would lie on each other."""
    places: dict[str, float] = {}
    last = -1.0
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        last = places[name] = max(height, last + _LINE)
    return places
