"""Who owns what: for each way of dividing the parameters, a row per rank with the pieces and the padding it stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ..style import (
    INK,
    LANE,
    MUTED,
    WIDTH,
    headline_above,
    ink_on,
    legend_below,
    new_figure,
    rank_color,
    style,
)

if TYPE_CHECKING:
    from dtlearn.zero.partition.partition import Partition

_BAR = 0.78  # of a row's height
_AXES_INCHES = WIDTH * 0.8
_INCHES_PER_CHARACTER = 0.078


def shard_map(
    partitions: Mapping[str, Partition],
    names: Sequence[str],
    title: str = "Who owns which elements",
    label: str = "",
) -> Figure:
    """Draw each partition below the other, on one scale of elements.

    A row is what one rank stores, in the order in which it lies there: a box for each piece, with the parameter's name
    and, if the rank owns a part of it, the elements; hatched boxes are padding. Behind the row stands how much it owns.

    Args:
        partitions: by name.
        names: of the parameters, by number.
        title: what the figure is about.
        label: what is divided, printed under the title.

    Raises:
        ValueError: no partition, or one with another number of parameters than names.
    """
    wrong = [name for name, partition in partitions.items() if len(partition.sizes) != len(names)]
    if not partitions or wrong:
        raise ValueError(f"partitions of {len(names)} parameters are needed; got {list(partitions)}, wrong: {wrong}")
    right = max(partition.shard for partition in partitions.values()) * 1.2
    rows = [partition.num_ranks for partition in partitions.values()]
    with style():
        fig = new_figure(height=1.45 + 0.3 * sum(rows) + 0.32 * len(rows))
        all_axes = fig.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=rows)[:, 0]
        for (name, partition), ax in zip(partitions.items(), all_axes, strict=True):
            _draw(ax, partition, names, right)
            ax.annotate(name, (0, 1), (0, 2), xycoords="axes fraction", textcoords="offset points", weight="bold")
        all_axes[-1].set_xlabel("elements that the rank stores")
        headline_above(fig, title, label)
        padding = Patch(facecolor="white", edgecolor=MUTED, hatch="////", linewidth=0, label="padding")
        pieces = Patch(facecolor=MUTED, label="a piece: parameter [from : to], or all of it")
        legend_below(fig, [pieces, padding] if any(p.padding for p in partitions.values()) else [pieces])
    return fig


def shard_words(partition: Partition, names: Sequence[str]) -> str:
    """Who owns what, in a sentence, for alt texts."""
    ranks = []
    for rank in range(partition.num_ranks):
        pieces = [_piece(partition, names, p.parameter, p.start, p.stop) for p in partition.slices(rank)]
        ranks.append(f"rank {rank}: {', '.join(pieces) or 'nothing'}")
    return "; ".join(ranks)


def _piece(partition: Partition, names: Sequence[str], parameter: int, start: int, stop: int) -> str:
    whole = (start, stop) == (0, partition.sizes[parameter])
    return names[parameter] if whole else f"{names[parameter]}[{start}:{stop}]"


def _draw(ax: Axes, partition: Partition, names: Sequence[str], right: float) -> None:
    first = list(accumulate((bucket.shard for bucket in partition.buckets), initial=0))
    for rank in range(partition.num_ranks):
        ax.axhspan(rank - 0.46, rank + 0.46, color=LANE, lw=0, zorder=0)
        owned = partition.owned(rank)
        spare = partition.shard - owned
        words = f"owns {owned}" + (f", padding {spare}" if spare else "")
        ax.text(partition.shard + 0.008 * right, rank, words if owned else "owns nothing", va="center", size=9)
    for row in partition.table():
        shard = partition.buckets[row.bucket].shard
        x, width = first[row.bucket] + row.offset - row.rank * shard, row.stop - row.start
        color = "white" if row.parameter is None else rank_color(row.rank)
        place = (x, row.rank - _BAR / 2), width, _BAR
        if row.parameter is None:
            ax.add_patch(Rectangle(*place, fc="white", ec=MUTED, hatch="////", lw=0, gid="padding"))
            continue
        ax.add_patch(Rectangle(*place, fc=color, ec="white", lw=1.2))
        text = _piece(partition, names, row.parameter, row.start, row.stop)
        texts = [text, text.split("[")[0] + "[…]" * text.endswith("]")]
        room = width / right * _AXES_INCHES / _INCHES_PER_CHARACTER
        if text := next((text for text in texts if room > len(text)), ""):
            ax.text(x + width / 2, row.rank, text, ha="center", va="center_baseline", size=8, color=ink_on(color))
    ax.set_xlim(0, right)
    ax.set_ylim(partition.num_ranks - 0.5, -0.5)
    ax.set_yticks(range(partition.num_ranks), [f"rank {r}" for r in range(partition.num_ranks)], color=INK)
    ax.tick_params(axis="y", length=0)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
