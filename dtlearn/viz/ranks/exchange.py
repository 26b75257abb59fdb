"""Who takes part in an operation: the value of each rank before and after it, and an arrow for what travelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from dtlearn.runtime.record.operations import operation_of
from dtlearn.runtime.record.record import Record

from ..style import INK, LANE, MUTED, RANK_COLORS, WIDTH, headline, new_figure, style

_BEFORE, _AFTER, _HUB = 0.0, 2.0, 1.35  # x of the values' boxes, and of the sum between them
_WIDE, _HIGH = 0.62, 0.52


@dataclass(frozen=True)
class Exchange:
    """One operation, as it was recorded.

    Attributes:
        title: what it is called.
        record: its calls: sends and recvs, or one collective.
        values: of each rank what it held before and after it, as text.
    """

    title: str
    record: Record
    values: Sequence[tuple[str, str]]

    @property
    def callers(self) -> set[int]:
        """The ranks that make a call."""
        return {event.rank for event in self.record}

    @property
    def ways(self) -> list[tuple[int, int]]:
        """Pairs of ranks, (from, to), between which a value travels; empty if all ranks combine theirs."""
        if messages := self.record.messages():
            return [(sent.rank, received.rank) for sent, received in messages]
        event = self.record.events[0]
        operation = operation_of(event.op)
        if not operation.root:
            return []
        assert event.peer is not None
        others = sorted(self.callers - {event.peer})
        return [(event.peer, r) if operation.peer == "src" else (r, event.peer) for r in others]


def exchange(*panels: Exchange) -> Figure:
    """Draw operations side by side; a rank that makes no call is grey.

    Args:
        panels: the operations.

    Raises:
        ValueError: no operation, one without a recorded call, or not a value for each rank.
    """
    if not panels or not all(len(p.record) for p in panels):
        raise ValueError("there is nothing to draw: give operations with their recorded calls")
    for panel in panels:
        if len(panel.values) != panel.record.world_size:
            raise ValueError(f"{panel.title}: give the values of each of the {panel.record.world_size} ranks")
    size = max(p.record.world_size for p in panels)
    with style():
        fig = new_figure(height=1.1 + 0.58 * size, width=WIDTH / 2 * len(panels))
        axes = fig.subplots(1, len(panels), squeeze=False)[0]
        for ax, panel in zip(axes, panels, strict=True):
            _draw(ax, panel)
    return fig


def _draw(ax: Axes, panel: Exchange) -> None:
    size = panel.record.world_size
    headline(ax, panel.title)
    for x, words in ((_BEFORE, "before"), (_AFTER, "after")):
        ax.text(x, -0.62, words, ha="center", va="center", size=9, color=MUTED)
    for rank in range(size):
        calls = rank in panel.callers
        color = RANK_COLORS[rank % len(RANK_COLORS)] if calls else MUTED
        ax.text(-0.5, rank, f"rank {rank}", ha="right", va="center", size=10, color=INK if calls else MUTED)
        for x, value in zip((_BEFORE, _AFTER), panel.values[rank], strict=True):
            corner = (x - _WIDE / 2, rank - _HIGH / 2)
            box = FancyBboxPatch(corner, _WIDE, _HIGH, boxstyle="round,pad=0,rounding_size=0.1", linewidth=1.6)
            box.set(facecolor="white" if calls else LANE, edgecolor=color)
            ax.add_patch(box)
            ax.text(x, rank, value, ha="center", va="center", size=10, color=INK if calls else MUTED)
        if not calls:
            ax.text((_BEFORE + _AFTER) / 2, rank, "makes no call", ha="center", va="center", size=8, color=MUTED)
    if not panel.ways:
        circle = {"boxstyle": "circle,pad=0.3", "facecolor": "white", "edgecolor": INK}
        ax.text(_HUB, (size - 1) / 2, "+", ha="center", va="center", size=12, zorder=5, bbox=circle)
    for sender, receiver in panel.ways:
        _arrow(ax, (_BEFORE + _WIDE / 2, sender), (_AFTER - _WIDE / 2, receiver))
    for rank in panel.callers if not panel.ways else ():
        _arrow(ax, (_BEFORE + _WIDE / 2, rank), (_HUB, (size - 1) / 2), head=False)
        _arrow(ax, (_HUB, (size - 1) / 2), (_AFTER - _WIDE / 2, rank))
    ax.set_xlim(-1.15, _AFTER + 0.45)
    ax.set_ylim(size - 0.55, -0.9)
    ax.set_axis_off()


def _arrow(ax: Axes, tail: tuple[float, float], tip: tuple[float, float], head: bool = True) -> None:
    kind = "-|>" if head else "-"
    ax.add_patch(
        FancyArrowPatch(tail, tip, arrowstyle=kind, mutation_scale=11, lw=1.2, color=INK, shrinkA=2, shrinkB=2)
    )
