"""A DTensor that is redistributed: what each rank holds under each placement, and what was sent in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

from dtlearn.runtime.record.collectives import members
from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record

from ..style import GRID, INK, MUTED, headline_above, ink_on, legend_below, new_figure, rank_color, style
from ..units import format_bytes
from ..zero.traffic_by_stage import sent_by_operation
from .local_block import LocalBlock, check_fit

_ACROSS, _NAMES = 8.7, 1.7  # inches: of the figure, and of the words at the left
_ROW, _BETWEEN, _TOP = 0.23, 0.5, 0.28  # inches: of a row of elements, between two states, and over the first
_SIDE = 0.3  # inches between two ranks
_PARTIAL = "////"
Ranks = Sequence[Sequence[LocalBlock]]


def draw_placements(
    ranks: Ranks,
    record: Record | None = None,
    title: str = "What each rank holds, and what is sent",
    label: str = "",
) -> Figure:
    """Draw a row for each state of the matrix and a column for each rank; between two states, what was sent.

    Args:
        ranks: of each rank the blocks that `local_block` noted, one for each state.
        record: of the run; None: nothing is said of what was sent.
        title: what the figure shows.
        label: words under the title.

    Raises:
        ValueError: no state, or ranks with different ones.
    """
    check_fit(ranks)
    (rows, columns), states = ranks[0][0].shape, len(ranks[0])
    height = _TOP + states * rows * _ROW + (states - 1) * _BETWEEN + 0.05
    cell = min(0.55, ((_ACROSS - _NAMES) / len(ranks) - _SIDE) / columns)
    with style():
        fig = new_figure(height=height + 1.0)
        ax = fig.add_subplot()
        for rank in range(len(ranks)):
            ax.text(_left(rank, cell, columns), 0.1, f"rank {rank}", va="center", size=9, weight="bold")
        for state in range(states):
            top = _TOP + state * (rows * _ROW + _BETWEEN)
            _draw_state(ax, [blocks[state] for blocks in ranks], top, cell)
            if state:
                _draw_step(ax, top, _sent(ranks, record, state))
        ax.set_xlim(-0.05, _ACROSS)
        ax.set_ylim(height, 0)
        ax.set_axis_off()
        headline_above(fig, title, label)
        legend_below(fig, _legend(ranks), columns=3)
    return fig


def placement_words(ranks: Ranks, record: Record | None = None) -> str:
    """The same in words, for alt texts."""
    check_fit(ranks)
    parts = []
    for state, block in enumerate(ranks[0]):
        if state:
            parts.append(f"Then {_sent(ranks, record, state) or 'it is redistributed'}.")
        held = "; ".join(f"rank {rank} {_part(blocks[state])}" for rank, blocks in enumerate(ranks))
        parts.append(f"{', '.join(block.placements)}, {block.notation()}: {held}.")
    return " ".join(parts)


def _part(block: LocalBlock) -> str:
    rows, columns = len(block.rows), len(block.rows[0]) if block.rows else 0
    if (rows, columns) == block.shape:
        return "a term of the sum, of all elements" if block.is_partial else "all elements"
    if not rows or not columns:
        return "nothing"
    (top, left), numbers = block.offset, block.shape
    words = [_span("row", top, rows)] if rows < numbers[0] else []
    words += [_span("column", left, columns)] if columns < numbers[1] else []
    return ", ".join(words)


def _span(what: str, first: int, length: int) -> str:
    return f"{what} {first}" if length == 1 else f"{what}s {first} to {first + length - 1}"


def _left(rank: int, cell: float, columns: int) -> float:
    return _NAMES + rank * (columns * cell + _SIDE)


def _sent(ranks: Ranks, record: Record | None, state: int) -> str:
    """What rank 0 called between the last state and this one, in words."""
    if record is None:
        return ""
    begin, end = ranks[0][state - 1].at_ns, ranks[0][state].at_ns
    events = [e for e in record.select(rank=0) if begin <= e.start_ns <= end and e.nbytes]
    if not events:
        return "nothing is sent"
    counts = Counter(_family(record, event)[0] for event in events)
    nbytes = sum(_family(record, event)[1] for event in events)
    calls = " + ".join(op.replace("_", "-") if n == 1 else f"{n} {op.replace('_', '-')}s" for op, n in counts.items())
    return f"{calls}: each rank sends {format_bytes(nbytes)}"


def _family(record: Record, event: Event) -> tuple[str, float]:
    """The operation, and the bytes that a rank sends for it."""
    if event.op.startswith("all_to_all"):  # of t parts that a rank hands in, one stays
        ranks = len(members(event.group, range(record.world_size)))
        return "all_to_all", event.nbytes * (ranks - 1) / ranks
    ((op, sent),) = sent_by_operation(replace(record, events=(event,), spans=()), event.rank).items()
    return op, sent


def _draw_state(ax: Axes, blocks: Sequence[LocalBlock], top: float, cell: float) -> None:
    (rows, columns), first = blocks[0].shape, blocks[0]
    middle = top + rows * _ROW / 2
    ax.text(0, middle - 0.1, ", ".join(first.placements), va="center", size=9.5, weight="bold", color=INK)
    ax.text(0, middle + 0.11, first.notation(), va="center", size=8.5, color=MUTED, family="DejaVu Sans Mono")
    for rank, block in enumerate(blocks):
        left = _left(rank, cell, columns)
        frame = Rectangle((left, top), columns * cell, rows * _ROW, fc="white", ec=GRID, lw=1, ls=(0, (2, 2)))
        ax.add_patch(frame)
        for i, row in enumerate(block.rows):
            for j, value in enumerate(row):
                at = (left + (block.offset[1] + j) * cell, top + (block.offset[0] + i) * _ROW)
                _draw_element(ax, at, cell, value, rank, block.is_partial)
        if block.is_partial and rank + 1 < len(blocks):
            ax.text(left + columns * cell + _SIDE / 2, middle, "+", ha="center", va="center", size=13, weight="bold")


def _draw_element(ax: Axes, at: tuple[float, float], cell: float, value: float, rank: int, is_partial: bool) -> None:
    color = rank_color(rank)
    look: dict[str, Any] = (
        {"fc": "white", "ec": color, "hatch": _PARTIAL} if is_partial else {"fc": color, "ec": "white"}
    )
    ax.add_patch(Rectangle(at, cell, _ROW, lw=0.8, gid=f"rank {rank}", **look))
    middle = (at[0] + cell / 2, at[1] + _ROW / 2)
    plate = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"} if is_partial else None
    ink = INK if is_partial else ink_on(color)
    ax.text(*middle, f"{value:g}", ha="center", va="center", size=8, color=ink, bbox=plate)


def _draw_step(ax: Axes, top: float, words: str) -> None:
    """Draw an arrow from the state above to the one that begins here, with words beside it."""
    ends = (_NAMES + 0.12, top - _BETWEEN + 0.07), (_NAMES + 0.12, top - 0.07)
    ax.add_patch(FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=10, lw=1.3, color=INK, shrinkA=0, shrinkB=0))
    ax.text(_NAMES + 0.28, top - _BETWEEN / 2, words, va="center", size=9, color=INK)


def _legend(ranks: Ranks) -> list[Patch]:
    handles = [Patch(fc=MUTED, label="elements that the rank holds")]
    handles.append(Patch(fc="white", ec=MUTED, ls=(0, (2, 2)), label="dashed: the whole matrix"))
    if any(block.is_partial for block in ranks[0]):
        handles.append(Patch(fc="white", ec=MUTED, hatch=_PARTIAL, label="partial: terms to be added up"))
    return handles
