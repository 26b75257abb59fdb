"""How many bytes each rank handed to each operation, beside what the formula says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from dtlearn.runtime.record.record import Record

from .style import INK, headline, legend_below, new_figure, op_patch, op_style, style
from .units import format_bytes

_MAX_LABELLED = 16  # ranks; beyond that the numbers would overlap


def bytes_per_rank(
    record: Record, expected: int | Mapping[int, int] | None = None, title: str = "Payload bytes per rank"
) -> Figure:
    """Draw the payload of each rank as a bar, stacked by operation.

    Args:
        record: the run; its label is printed under the title. Use `record.select(op=...)` to count one operation only.
        expected: bytes that each rank should have handed over, by the formula: one number, or one per rank.
        title: what the figure is about.

    Raises:
        ValueError: no call of the record carries bytes, or `expected` names a rank that does not exist.
    """
    ranks = range(record.world_size)
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * record.world_size)
    for event in record:
        if event.nbytes:
            sums[event.op][event.rank] += event.nbytes
    if not sums:
        raise ValueError("no call in this record carries bytes, so there is nothing to draw")
    marks = dict.fromkeys(ranks, expected) if isinstance(expected, int) else dict(expected or {})
    if unknown := set(marks) - set(ranks):
        raise ValueError(f"expected names rank {min(unknown)}, but the record has ranks 0 to {record.world_size - 1}")
    with style():
        fig = new_figure(height=3.4)
        ax = fig.add_subplot()
        base = [0] * record.world_size
        for op in sorted(sums):
            look = op_style(op)
            ax.bar(ranks, sums[op], bottom=base, width=0.6, color=look.color, hatch=look.hatch, edgecolor="white", lw=0)
            base = [b + n for b, n in zip(base, sums[op], strict=True)]
        for rank, mark in marks.items():
            ax.plot([rank - 0.38, rank + 0.38], [mark, mark], color=INK, linewidth=2, linestyle=(0, (3, 1.5)))
        top = max([*base, *(m for m in marks.values() if m is not None)])
        if record.world_size <= _MAX_LABELLED:
            for rank in ranks:
                above = max(base[rank], marks.get(rank) or 0)
                ax.text(rank, above + 0.02 * top, f"{base[rank]:,}", ha="center", va="bottom", size=9)
        ax.set_ylim(0, top * 1.12)
        ax.set_xlim(-0.6, record.world_size - 0.4)
        if record.world_size <= _MAX_LABELLED:
            ax.set_xticks(ranks, [f"rank {r}" for r in ranks])
        else:
            ax.set_xlabel("rank")
        ax.tick_params(axis="x", length=0)
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
        ax.set_ylabel("payload of its calls")
        ax.grid(axis="y")
        headline(ax, title, f"run: {record.label}" if record.label else "")
        handles: list[object] = [op_patch(op) for op in sorted(sums)]
        if marks:
            words = f"expected: {expected:,} bytes" if isinstance(expected, int) else "expected"
            handles.append(Line2D([], [], color=INK, linewidth=2, linestyle=(0, (3, 1.5)), label=words))
        legend_below(fig, handles)
    return fig
