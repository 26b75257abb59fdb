"""Bytes by category as bars, one above the other, and the memory of a GPU beside them: what fits, and what does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..style import ALARM, INK, headline, legend_below, new_figure, style
from .categories import LOOKS, in_order, patch

_UNITS = {"MB": 1e6, "GB": 1e9, "TB": 1e12}
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1)), (0, (5, 1, 1, 1)))
_LETTER = 0.0115  # width of a letter, as a share of the axes
_VISIBLE = 0.0005  # of the longest bar: what is less has no place in the legend
_PLATE = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
Bars = Mapping[str, Mapping[str, float]]


def stacked_bars(
    bars: Bars,
    capacity: Mapping[str, float] | None = None,
    unit: str = "GB",
    title: str = "What fits",
    label: str = "",
    notes: Mapping[str, str] | None = None,
) -> Figure:
    """Draw a bar per row, stacked by category, with its sum; lines show what a GPU has.

    Args:
        bars: {row: {category: bytes}}, from top to bottom.
        capacity: bytes of memory by the GPU's name; a row above the largest has its sum in the warning colour.
        unit: "MB", "GB" or "TB", all decimal.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.
        notes: words behind the sum of a row.

    Raises:
        ValueError: no bar, an unknown unit or category, a note for no row, or bytes below 0.
    """
    capacity, notes = dict(capacity or {}), dict(notes or {})
    values = [n for parts in bars.values() for n in parts.values()] + list(capacity.values())
    if (
        not bars
        or unit not in _UNITS
        or min(values, default=0) < 0
        or set(notes) - set(bars)
        or len(capacity) > len(_DASHES)
    ):
        raise ValueError(
            f"bars are needed, with bytes of 0 or more, in {', '.join(_UNITS)}, notes for them only, and at most "
            f"{len(_DASHES)} GPUs; got {list(bars)}, {unit!r}, {list(notes)}, {list(capacity)}"
        )
    sums = {name: sum(parts.values()) for name, parts in bars.items()}
    size, longest = _UNITS[unit], max([*sums.values(), *capacity.values()]) / _UNITS[unit] or 1
    known = in_order({c for parts in bars.values() for c in parts})
    seen = [c for c in known if max(parts.get(c, 0) for parts in bars.values()) > _VISIBLE * longest * size]
    right = longest * (1.16 + 0.011 * max(map(len, notes.values()), default=0))
    with style():
        fig = new_figure(height=1.6 + 0.42 * len(bars))
        ax = fig.add_subplot()
        for row, (name, parts) in enumerate(bars.items()):
            at = 0.0
            for category in seen:
                width, look = parts.get(category, 0) / size, LOOKS[category]
                ax.barh(row, width, 0.68, at, color=look.color, hatch=look.hatch, ec="white", lw=0.4)
                at += width
            over = bool(capacity) and sums[name] > max(capacity.values())
            words = " ".join(filter(None, (_number(sums[name] / size), unit, notes.get(name, ""))))
            color = ALARM if over else INK
            start = _beside(at, _LETTER * len(words) * right, [nbytes / size for nbytes in capacity.values()])
            ax.text(start + 0.012 * longest, row, words, va="center", size=9, color=color, bbox=_PLATE, zorder=4)
        lines = _lines(ax, {name: nbytes / size for name, nbytes in capacity.items()})
        ax.set_xlim(0, right)
        ax.set_ylim(len(bars) - 0.4, -0.6)
        ax.set_yticks(range(len(bars)), list(bars))
        ax.tick_params(axis="y", length=0)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        ax.set_xlabel(f"{unit} (10{_power(size)} bytes)")
        headline(ax, title, label)
        legend_below(fig, [*map(patch, seen), *lines], columns=4)
    return fig


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _beside(end: float, width: float, lines: Iterable[float]) -> float:
    """Where words of this width begin: at the end of a bar, or at the last line that would go through them."""
    for line in sorted(lines):
        if end <= line <= end + width:
            end = line
    return end


def _power(size: float) -> str:
    return {1e6: "⁶", 1e9: "⁹", 1e12: "¹²"}[size]


def _lines(ax: Axes, capacity: Mapping[str, float]) -> list[Line2D]:
    """Draw a line at each capacity, and return the legend entries."""
    handles = []
    for (name, at), dashes in zip(capacity.items(), _DASHES, strict=False):
        ax.axvline(at, color=ALARM, lw=1.5, ls=dashes, zorder=3)
        handles.append(Line2D([], [], color=ALARM, lw=1.5, ls=dashes, label=name))
    return handles
