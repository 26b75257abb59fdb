"""Orders of a mesh's axes: what each sends from node to node, and how long a step of it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtlearn.runtime.words import format_seconds

from ..style import MUTED, headline, legend_below, new_figure, style
from ..units import format_bytes
from .looks import AXES, look_patch

if TYPE_CHECKING:
    from dtlearn.hybrid_parallel.rank_order import OrderCost

_BYTE_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0))
_SECOND_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


def order_bars(
    costs: Sequence[OrderCost],
    seconds: Mapping[str, float] | None = None,
    title: str = "Which order of the axes sends least from node to node",
    label: str = "",
) -> Figure:
    """Draw a bar for each order, stacked by axis; with measured seconds beside it.

    Args:
        costs: of `hybrid_parallel.compare_orders`.
        seconds: of a step, by `str(cost.layout)`; orders without a measurement have no bar there.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no order, or seconds of an order that is none of them.
    """
    names = [str(cost.layout) for cost in costs]
    seconds = dict(seconds or {})
    if not costs or set(seconds) - set(names):
        raise ValueError(f"orders are needed, and seconds of these only; got {names} and seconds of {list(seconds)}")
    axes = [axis for axis in AXES if any(axis in cost.between_nodes for cost in costs)]
    word, size = _unit(max(cost.total for cost in costs), _BYTE_UNITS)
    with style():
        fig = new_figure(height=1.75 + 0.42 * len(costs))
        panels = fig.subplots(1, 2 if seconds else 1, sharey=True, squeeze=False)[0]
        for row, cost in enumerate(costs):
            at = 0.0
            for axis in axes:
                width, look = cost.between_nodes.get(axis, 0.0) / size, AXES[axis]
                if width:
                    panels[0].barh(row, width, 0.66, at, color=look.color, hatch=look.hatch, ec="white", lw=0.4)
                at += width
            _behind(panels[0], at, row, format_bytes(cost.total) if cost.total else "nothing")
        _limits(panels[0], max(cost.total for cost in costs) / size)
        panels[0].set_yticks(range(len(costs)), names)
        panels[0].set_ylim(len(costs) - 0.4, -0.6)
        panels[0].set_xlabel(f"sent between nodes in a step, all ranks ({word})")
        if seconds:
            _draw_seconds(panels[1], names, seconds)
        for ax in panels:
            ax.tick_params(axis="y", length=0)
        under = label or "first: the innermost axis, whose neighbours have neighbouring numbers"
        headline(panels[0], title, under, corner=panels[-1])  # it says so when a link was emulated
        legend_below(fig, [look_patch(axis, AXES[axis]) for axis in axes])
    return fig


def order_words(costs: Sequence[OrderCost], seconds: Mapping[str, float] | None = None) -> str:
    """The picture in words."""
    seconds = seconds or {}
    bars = "; ".join(
        f"{cost.layout}, {format_bytes(cost.total)}"
        + (f" and {format_seconds(seconds[str(cost.layout)])}" if str(cost.layout) in seconds else "")
        for cost in costs
    )
    return f"Bytes between nodes by the order of the axes, innermost first: {bars}."


def _draw_seconds(ax: Axes, names: Sequence[str], seconds: Mapping[str, float]) -> None:
    word, size = _unit(max(seconds.values()), _SECOND_UNITS)
    for row, name in enumerate(names):
        if name in seconds:
            ax.barh(row, seconds[name] / size, 0.66, color=MUTED)
            _behind(ax, seconds[name] / size, row, format_seconds(seconds[name]))
        else:
            _behind(ax, 0.0, row, "not measured")
    _limits(ax, max(seconds.values()) / size)
    ax.set_xlabel(f"measured time of a step ({word})")


def _unit(largest: float, units: Sequence[tuple[str, float]]) -> tuple[str, float]:
    return next(((word, size) for word, size in units if largest >= size), units[-1])


def _behind(ax: Axes, at: float, row: int, words: str) -> None:
    ax.annotate(words, (at, row), (5, 0), textcoords="offset points", va="center", size=9)


def _limits(ax: Axes, longest: float) -> None:
    ax.set_xlim(0, 1.25 * longest or 1)
