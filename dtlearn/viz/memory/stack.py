"""The stack of categories over one step, and its phases: what every picture of a step's memory is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from ..style import INK
from .categories import LOOKS, MB, in_order

if TYPE_CHECKING:
    from dtlearn.memory.ledger.record import MemoryRecord


def draw_stack(ax: Axes, record: MemoryRecord) -> list[str]:
    """Fill the axes with the categories that ever have bytes, and return them from the bottom up."""
    lines = record.timeline()
    seen = in_order(category for category, line in lines.items() if max(line, default=0))
    below = [0.0] * len(record.live())
    for category in seen:
        above = [b + value / MB for b, value in zip(below, lines[category], strict=True)]
        look, kept = LOOKS[category], _changes(below, above)
        low, high = ([line[tick] for tick in kept] for line in (below, above))
        ax.fill_between(kept, low, high, step="post", fc=look.color, ec="white", hatch=look.hatch, lw=0)
        below = above
    kept = _changes(below)
    ax.step(kept, [below[tick] for tick in kept], where="post", color=INK, lw=0.8)
    ax.set_xlim(0, len(below) - 1)
    return seen


def draw_phases(ax: Axes, record: MemoryRecord, names: bool) -> None:
    """Draw a dotted line where each phase but the first begins; with `names`, write all names at the top."""
    for number, phase in enumerate(record.phases):
        if number:
            ax.axvline(phase.start, color=INK, lw=0.9, ls=(0, (1, 2)), zorder=3)
        if names:
            middle = (phase.start + phase.stop) / 2
            ax.text(middle, 0.985, phase.name, transform=ax.get_xaxis_transform(), ha="center", va="top", size=9)


def _changes(*lines: Sequence[float]) -> list[int]:
    """The ticks at which one of the lines changes, and the first and the last tick: a stair needs no other points."""
    columns = list(zip(*lines, strict=True))
    last = len(columns) - 1
    return [tick for tick in range(last + 1) if tick in (0, last) or columns[tick] != columns[tick - 1]]
