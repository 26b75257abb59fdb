"""Which rank sees which sample: a column per sample, a row per epoch, a colour and a number per rank.

The columns are in the data set's order and the rows right under each other, so that one sees at once what a sampler
does: an order that repeats, samples that come twice, samples that never come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from dtlearn.runtime.words import counted

from ..style import (
    ALARM,
    GRID,
    INK,
    MUTED,
    RANK_COLORS,
    headline,
    ink_on,
    legend_below,
    new_figure,
    rank_color,
    style,
)

Epoch = Sequence[Sequence[int]]  # of each rank, the samples that it saw, in order

_MAX_RANKS = 2 * len(RANK_COLORS)  # the colours, then the same, paler
_MAX_SAMPLES = 200  # more columns would be thinner than three pixels
_MAX_NUMBERED = 48  # with more columns, the rank's number does not fit into a cell
_CELL = 0.84  # of a row's height
_HATCH = "////"


def sample_grid(
    epochs: Sequence[Epoch],
    num_samples: int,
    rows: Sequence[str] | None = None,
    title: str = "Which rank sees which sample",
    label: str = "",
) -> Figure:
    """Draw what a sampler dealt out.

    A cell is a sample in an epoch, with the colour and the number of the rank that saw it. A sample that was seen more
    than once has a part for every time, the first on top, the others hatched; one that no rank saw is an empty frame.

    Args:
        epochs: `epochs[e][r]` are the samples that rank r saw in epoch e, in order. The number of ranks may change.
        num_samples: of the data set, at most 200.
        rows: a name for each row; default "epoch 0", "epoch 1", ...
        title: what the figure is about.
        label: where the indices come from, printed under the title.

    Raises:
        ValueError: there is no epoch or sample, there are too many samples or more than 12 ranks, a sample is not in
            the data set, or `rows` has another length than `epochs`.
    """
    num_ranks = _check(epochs, num_samples)
    names = _names(epochs, rows, "epoch")
    dealt = [_sightings(epoch, num_samples) for epoch in epochs]
    with style():
        fig = new_figure(height=1.75 + 0.46 * len(epochs))
        ax = fig.add_subplot()
        for y, seen_by in enumerate(dealt):
            for sample, ranks in enumerate(seen_by):
                _draw_cell(ax, sample, y, ranks, numbered=num_samples <= _MAX_NUMBERED)
            ax.annotate(
                _row_words(seen_by),
                (1, y),
                (8, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center",
                size=9,
                color=MUTED if all(len(ranks) == 1 for ranks in seen_by) else ALARM,
            )
        ax.set_xlim(-0.5, num_samples - 0.5)
        ax.set_ylim(len(epochs) - 0.5, -0.5)
        step = next(s for s in (1, 2, 5, 10, 20) if num_samples <= 24 * s)
        ax.set_xticks(range(0, num_samples, step))
        ax.set_yticks(range(len(epochs)), names)
        ax.tick_params(length=0)
        for side in ax.spines.values():
            side.set_visible(False)
        ax.set_xlabel("sample, in the order of the data set")
        headline(ax, title, label)
        legend_below(fig, _legend(num_ranks, dealt), columns=7)
    return fig


def sample_words(epochs: Sequence[Epoch], num_samples: int, rows: Sequence[str] | None = None) -> str:
    """The figure in words, as alt text."""
    _check(epochs, num_samples)
    names = _names(epochs, rows, "Epoch")
    parts = [f"{counted(num_samples, 'sample')}."]
    for i, (name, epoch) in enumerate(zip(names, epochs, strict=True)):
        seen_by = _sightings(epoch, num_samples)
        same = next((k for k in range(i) if [list(r) for r in epochs[k]] == [list(r) for r in epoch]), None)
        again = "" if same is None else f", in the same order as {names[same][:1].lower()}{names[same][1:]}"
        parts.append(f"{name}: {len(epoch)} rank{'s' * (len(epoch) != 1)}, {_row_words(seen_by)}{again}.")
    return " ".join(parts)


def _check(epochs: Sequence[Epoch], num_samples: int) -> int:
    """The largest number of ranks. Raises ValueError for what cannot be drawn."""
    if not epochs or not 1 <= num_samples <= _MAX_SAMPLES:
        raise ValueError(f"give at least one epoch, and 1 to {_MAX_SAMPLES} samples (got {num_samples})")
    num_ranks = max(map(len, epochs))
    if not 1 <= num_ranks <= _MAX_RANKS:
        raise ValueError(f"there are colours for 1 to {_MAX_RANKS} ranks, got {num_ranks}")
    for e, epoch in enumerate(epochs):
        for r, samples in enumerate(epoch):
            if outside := [s for s in samples if not 0 <= s < num_samples]:
                raise ValueError(f"epoch {e}, rank {r}: {outside[0]} is no sample, they are 0 to {num_samples - 1}")
    return num_ranks


def _names(epochs: Sequence[Epoch], rows: Sequence[str] | None, word: str) -> list[str]:
    names = [f"{word} {e}" for e in range(len(epochs))] if rows is None else list(rows)
    if len(names) != len(epochs):
        raise ValueError(f"rows must name each of the {len(epochs)} rows, got {len(names)} names")
    return names


def _sightings(epoch: Epoch, num_samples: int) -> list[list[int]]:
    """The ranks that saw each sample, in order of time: what all ranks saw first, then what they saw second, ..."""
    seen_by: list[list[int]] = [[] for _ in range(num_samples)]
    for place in range(max(map(len, epoch), default=0)):
        for rank, samples in enumerate(epoch):
            if place < len(samples):
                seen_by[samples[place]].append(rank)
    return seen_by


def _draw_cell(ax: Axes, sample: int, y: int, ranks: Sequence[int], numbered: bool) -> None:
    width = 0.9 if numbered else 1.0  # many thin columns look better without gaps
    x, top = sample - width / 2, y - _CELL / 2
    if not ranks:
        ax.add_patch(Rectangle((x, top), width, _CELL, fc="white", ec=ALARM, lw=0.9, ls=(0, (2, 2)), gid="never"))
        return
    height = _CELL / len(ranks)
    for time, rank in enumerate(ranks):
        color, begin = rank_color(rank), top + time * height
        # A hatch has the colour of the edge; without a line the edge itself is not drawn.
        hatch: dict[str, Any] = {"hatch": _HATCH, "ec": "white", "gid": "again"} if time else {"gid": "first"}
        ax.add_patch(Rectangle((x, begin), width, height, fc=color, lw=0, **hatch))
        if numbered and height > 0.25:
            ax.text(
                sample,
                begin + height / 2,
                str(rank),
                ha="center",
                va="center_baseline",
                size=8,
                color=ink_on(color),
                bbox={"boxstyle": "round,pad=0.12", "fc": color, "lw": 0} if time else None,
            )


def _row_words(seen_by: Sequence[Sequence[int]]) -> str:
    """A row in words: "each seen once", or how many samples came again or never."""
    again, never = sum(len(ranks) > 1 for ranks in seen_by), sum(not ranks for ranks in seen_by)
    if not again and not never:
        return "each seen once"
    often = "twice" if max(map(len, seen_by)) == 2 else "repeatedly"
    return ", ".join([*([f"{again} seen {often}"] if again else []), *([f"{never} never seen"] if never else [])])


def _legend(num_ranks: int, dealt: Sequence[Sequence[Sequence[int]]]) -> list[Patch]:
    handles = [Patch(facecolor=rank_color(r), lw=0, label=f"rank {r}") for r in range(num_ranks)]
    if any(len(ranks) > 1 for seen_by in dealt for ranks in seen_by):
        handles.append(Patch(facecolor=GRID, edgecolor=INK, hatch=_HATCH, lw=0, label="seen again (padding)"))
    if any(not ranks for seen_by in dealt for ranks in seen_by):
        handles.append(Patch(facecolor="white", edgecolor=ALARM, lw=0.9, ls=(0, (2, 2)), label="seen by no rank"))
    return handles
