"""Memory over one training step: what is alive after each allocation and release, stacked by category."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..style import ALARM, MUTED, headline, headline_above, legend_below, new_figure, style
from .categories import MB, in_order, patch
from .stack import draw_phases, draw_stack

if TYPE_CHECKING:
    from dtlearn.memory.ledger.record import MemoryRecord

_COLUMNS = 3  # of small pictures in a row
_PLATE = {
    "boxstyle": "round,pad=0.15",
    "facecolor": "white",
    "edgecolor": "none",
    "alpha": 0.85,
}  # under words on lines


def step_memory(record: MemoryRecord, title: str = "Memory over one step", label: str = "") -> Figure:
    """Draw one step as a stack of categories, with its phases, its peak, and what was allocated at the peak.

    Args:
        record: of one step; its clock moves by one at each allocation and release, so widths are no times.
        title: what the figure is about.
        label: where the record comes from, printed under the title.

    Raises:
        ValueError: a record in which nothing is ever alive.
    """
    _check({"": record})
    with style():
        fig = new_figure(height=4.8)
        ax = fig.add_subplot()
        highest = record.peak.bytes / MB
        seen = draw_stack(ax, record)
        ax.set_ylim(0, 1.5 * highest)
        ax.set_xlabel("allocations and releases, one after the other (not time)")
        ax.set_ylabel("bytes alive (MB = 10⁶ bytes)")
        draw_phases(ax, record, names=True)
        _peak(ax, record)
        headline(ax, title, label)
        legend_below(fig, [patch(category) for category in reversed(seen)], columns=4)
    return fig


def step_memories(
    records: Mapping[str, MemoryRecord], title: str = "One step in several ways", label: str = ""
) -> Figure:
    """Draw several steps side by side with one scale of bytes, the peak of each in words; the first is the measure.

    Args:
        records: steps of one model and one batch, by name. Each fills its picture from its beginning to its end.
        title: what the figure is about.
        label: where the records come from, printed under the title.

    Raises:
        ValueError: no record, or one in which nothing is ever alive.
    """
    _check(records)
    rows = -(-len(records) // _COLUMNS)
    with style():
        fig = new_figure(height=1.0 + 2.1 * rows)
        axes = fig.subplots(rows, min(_COLUMNS, len(records)), sharey=True, squeeze=False)
        first = next(iter(records.values())).peak.bytes
        highest = max(record.peak.bytes for record in records.values()) / MB
        seen = set[str]()
        for ax, (name, record) in zip(axes.flat, records.items(), strict=False):
            seen |= set(draw_stack(ax, record))
            draw_phases(ax, record, names=False)
            ax.axhline(first / MB, color=MUTED, lw=0.9, ls=(0, (4, 2)), zorder=3)
            peak = record.peak
            ax.plot(peak.at, peak.bytes / MB, "v", color=ALARM, ms=7, mec="white", zorder=4)
            share = "" if record is next(iter(records.values())) else f", {100 * peak.bytes / first:.0f} %"
            above: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "size": 9}
            ax.annotate(name, (0, 1), (0, 3), weight="bold", **above)
            words = f"{peak.bytes / MB:.1f} MB{share}"
            ax.annotate(words, (1, 1), (0, -2), ha="right", va="top", bbox=_PLATE, zorder=4, **above)
            ax.set_ylim(0, 1.25 * highest)
            ax.set_xticks([])
        for ax in list(axes.flat)[len(records) :]:
            ax.set_axis_off()
        for row in axes:
            row[0].set_ylabel("alive (MB)")
        words = "triangle: the peak; dashed line: the first one's peak; dotted lines: phases"
        headline_above(fig, title, "; ".join(filter(None, (label, words))))
        legend_below(fig, [patch(category) for category in reversed(in_order(seen))], columns=4)
    return fig


def peak_words(record: MemoryRecord) -> str:
    """The peak and its owner in a sentence, for alt texts and tables."""
    peak, owner = record.peak, record.peak.owner
    if owner is None:
        return "nothing is alive"
    parts = ", ".join(f"{c} {peak.by_category[c] / MB:.1f}" for c in in_order(peak.by_category) if peak.by_category[c])
    where = " in ".join(filter(None, (owner.operation or "there before", owner.module)))
    return (
        f"peak {peak.bytes / MB:.1f} MB in {peak.phase or 'no phase'} ({parts}); the largest storage made there: "
        f"{owner.bytes / MB:.2f} MB of {owner.category}, {where}"
    )


def _check(records: Mapping[str, MemoryRecord]) -> None:
    empty = [name for name, record in records.items() if not record.allocations or not max(record.live(), default=0)]
    if not records or empty:
        raise ValueError(f"a picture of memory needs a record with bytes alive; got {empty or 'no record'}")


def _peak(ax: Axes, record: MemoryRecord) -> None:
    peak, owner = record.peak, record.peak.owner
    assert owner is not None  # something is alive
    where = " in ".join(filter(None, (owner.operation, owner.module)))
    largest = f"largest made in this phase: {owner.bytes / MB:.2f} MB of {owner.category}"
    words = "\n".join(filter(None, (f"peak: {peak.bytes / MB:.1f} MB", largest, where, owner.line)))
    right = peak.at < len(record.live()) / 2
    ax.annotate(
        words,
        (peak.at, peak.bytes / MB),
        (14 if right else -14, 10),
        textcoords="offset points",
        ha="left" if right else "right",
        va="bottom",
        size=9,
        color=ALARM,
        bbox=_PLATE,
        arrowprops={"arrowstyle": "-|>", "color": ALARM, "lw": 1},
    )
