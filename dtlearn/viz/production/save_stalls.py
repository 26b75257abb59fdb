"""When training stood still for a save, and when its files were written: beside training, or in its way."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import counted

from ..memory.categories import Look
from ..style import MUTED, headline_above, legend_below, new_figure, style
from .looks import draw_spans, lanes, patch, short_time, time_unit

SAVE, WRITE = "save", "write"  # the phases that a `Checkpointer` marks
TRAINING, STALL, WRITING = Look("#56B4E9", ""), Look("#B23A00", "////"), Look("#F0E442", "|||")
_HIGH, _LOW = 0.46, 0.24  # of a lane: training, and under it the writer


class RankSaves(NamedTuple):
    """A rank's time in seconds since the first rank began to train: (start, end) of each."""

    training: list[tuple[float, float]]
    stalls: list[tuple[float, float]]
    writing: list[tuple[float, float]]
    steps: list[float]  # when each optimizer step ended


def saves_in(record: Record) -> dict[int, RankSaves]:
    """What each rank of a recorded run did: it trains from its first forward pass to its last step, or save.

    Raises:
        ValueError: no rank has a forward pass and a save.
    """
    spans = [span for span in record.spans if span.end_ns is not None]
    forwards = [span.start_ns for span in spans if span.phase == "forward"]
    if not forwards or not any(span.phase == SAVE for span in spans):
        raise ValueError("the record has no forward pass and no save: run a job that saves with record=True")
    begin = min(forwards)

    def of(rank: int, phase: str) -> list[tuple[float, float]]:
        return [
            ((s.start_ns - begin) / 1e9, ((s.end_ns or 0) - begin) / 1e9)
            for s in spans
            if s.rank == rank and s.phase == phase and s.start_ns >= begin
        ]

    found = {}
    for rank in range(record.world_size):
        stalls, steps = of(rank, SAVE), [end for _, end in of(rank, "step")]
        last = max([*steps, *(end for _, end in stalls)], default=0.0)
        edges = [min((start for start, _ in of(rank, "forward")), default=last)]
        for start, end in stalls:
            edges += [start, end]
        training = [(a, b) for a, b in zip(edges[::2], [*edges[1::2], last], strict=True) if b > a]
        found[rank] = RankSaves(training, stalls, of(rank, WRITE), steps)
    return found


def save_stalls(runs: Mapping[str, Record], title: str = "", label: str = "", until: float | None = None) -> Figure:
    """Draw a panel for each run on one time axis: a lane per rank with training and stalls, under it the writer.

    Args:
        runs: records by name, such as "synchronous" and "asynchronous", of jobs that save with a `Checkpointer`.
        title: "": the median stall of each.
        label: printed under the title.
        until: seconds that are drawn; None: all.

    Raises:
        ValueError: no run, or one without a save.
    """
    if not runs:
        raise ValueError("at least one record is needed, by name")
    panels = {name: saves_in(record) for name, record in runs.items()}
    right = until or max(max(_ends(of)) for ranks in panels.values() for of in ranks.values())
    unit, size = time_unit(right)
    with style():
        fig = new_figure(height=1.5 + sum(0.35 + 0.48 * len(ranks) for ranks in panels.values()))
        shares = [len(ranks) + 0.2 for ranks in panels.values()]
        axes = fig.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=shares)[:, 0]
        for ax, (name, ranks) in zip(axes, panels.items(), strict=True):
            lanes(ax, [f"rank {rank}" for rank in ranks], right / size)
            for rank, own in ranks.items():
                _draw(ax, own, rank, size)
            ax.set_title(f"{name}: {_stall_words(ranks)}", loc="left", size=9.5, weight="normal", pad=3)
        axes[-1].set_xlabel(f"time since the first forward pass ({unit})")
        headline_above(fig, title or _title(panels), label)
        entries = {
            "training, a line after each step": TRAINING,
            "training stands still": STALL,
            "files are written": WRITING,
        }
        legend_below(fig, [patch(look, words) for words, look in entries.items()])
    return fig


def stall_words(runs: Mapping[str, Record]) -> str:
    """The picture in words."""
    parts = [f"{name}, {_stall_words(saves_in(record))}" for name, record in runs.items()]
    return f"When training stands still for saves, and when files are written. {'; '.join(parts)}."


def _title(panels: Mapping[str, Mapping[int, RankSaves]]) -> str:
    stalls = [f"{short_time(_median_stall(ranks))} ({name})" for name, ranks in panels.items()]
    return f"A save stops training for {' and '.join(stalls)}"


def _median_stall(ranks: Mapping[int, RankSaves]) -> float:
    """Seconds that a save stalls training: the median over a rank's saves, of the slowest rank."""
    return max(median([end - start for start, end in own.stalls] or [0.0]) for own in ranks.values())


def _stall_words(ranks: Mapping[int, RankSaves]) -> str:
    """How often and how long training stood still, and how long the writer wrote."""
    lengths = [end - start for own in ranks.values() for start, end in own.writing] or [0.0]
    return (
        f"{counted(max(len(own.stalls) for own in ranks.values()), 'save')}, training waits "
        f"{short_time(_median_stall(ranks))} for each, writing takes {short_time(median(lengths))} (medians)"
    )


def _ends(own: RankSaves) -> list[float]:
    return [end for part in own[:3] for _, end in part] or [0.0]


def _draw(ax: Axes, own: RankSaves, rank: int, size: float) -> None:
    upper, lower = rank - 0.43 + _HIGH / 2, rank + 0.43 - _LOW / 2
    for part, look in ((own.training, TRAINING), (own.stalls, STALL)):
        draw_spans(ax, [(a / size, b / size) for a, b in part], upper, look, _HIGH)
    draw_spans(ax, [(a / size, b / size) for a, b in own.writing], lower, WRITING, _LOW)
    places = [at / size for at in own.steps]
    ax.vlines(places, upper - _HIGH / 2, upper + _HIGH / 2, color="white", lw=1, zorder=3)
    ax.grid(axis="x", color=MUTED, alpha=0.25)
