"""What each rank sends in several algorithms, side by side on one scale."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from dtlearn.runtime.record.record import Record

from ..style import INK, MUTED, RANK_COLORS, new_figure, style
from ..units import format_bytes


def sent_by(record: Record) -> list[int]:
    """Bytes that each rank sent in point-to-point messages."""
    return [sum(e.nbytes for e in record if e.rank == r and e.sends) for r in range(record.world_size)]


def sent_bytes(records: Mapping[str, Record], title: str) -> Figure:
    """A panel for each algorithm, a bar for each rank; the busiest rank of each is named.

    Args:
        records: of one collective each, by the name of its algorithm.
        title: what the figure is about.

    Raises:
        ValueError: no records, or one without messages.
    """
    sums = {name: sent_by(record) for name, record in records.items()}
    if not sums or not all(any(each) for each in sums.values()):
        raise ValueError("each record needs at least one message that was sent")
    top = max(max(each) for each in sums.values())
    with style():
        fig = new_figure(height=3.0)
        fig.suptitle(title, x=0.005, ha="left", weight="bold", size=12)
        axes = fig.subplots(1, len(sums), sharey=True, squeeze=False)[0]
        for ax, (name, each) in zip(axes, sums.items(), strict=True):
            ranks, busiest = range(len(each)), max(each)
            colors = [RANK_COLORS[r % len(RANK_COLORS)] for r in ranks]
            ax.bar(ranks, each, width=0.62, color=colors)
            for rank, n in zip(ranks, each, strict=True):
                weight = "bold" if n == busiest else "normal"
                ax.text(rank, n + 0.02 * top, format_bytes(n), ha="center", va="bottom", size=9, weight=weight)
            who = f"rank {each.index(busiest)}" if each.count(busiest) == 1 else "every rank"
            ax.set_title(f"{name}: {who} sends {format_bytes(busiest)}", loc="left", size=10, color=INK)
            ax.set_xticks(ranks, [f"rank {r}" for r in ranks])
            ax.tick_params(axis="x", length=0)
            ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
            ax.set_ylim(0, 1.15 * top)
            ax.grid(axis="y")
        axes[0].set_ylabel("bytes sent")
        labels = {record.label for record in records.values() if record.label}
        if labels:
            fig.supxlabel(f"Run: {', '.join(sorted(labels))}", x=0.005, ha="left", size=8.5, color=MUTED)
    return fig


def sent_words(records: Mapping[str, Record]) -> str:
    """The figure in words."""
    return " ".join(
        f"{name}: " + ", ".join(f"rank {r} sends {format_bytes(n)}" for r, n in enumerate(sent_by(record))) + "."
        for name, record in records.items()
    )
