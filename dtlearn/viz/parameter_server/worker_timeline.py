"""Who computes and who waits, under one rule of consistency above the other: the straggler's picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ..style import ALARM, INK, LANE, MUTED, headline_above, ink_on, legend_below, new_figure, rank_color, style

if TYPE_CHECKING:
    from dtlearn.runtime.record.record import Record

_BAR = 0.74


class WorkerBusy(NamedTuple):
    """A worker computes its step of that number, from 0, from `start` to `end` in seconds. Between two, it waits."""

    worker: int
    number: int
    start: float
    end: float


def computing_in(record: Record, num_servers: int) -> list[WorkerBusy]:
    """When the workers of a recorded run computed: from the forward pass to the end of the backward pass.

    Seconds count from when the first worker begins to compute. A step is what lies between two backward passes' ends.

    Args:
        record: of a run of servers and workers.
        num_servers: the first ranks, which are left out.

    Raises:
        ValueError: no worker has a backward pass.
    """
    steps = []
    for rank in range(num_servers, record.world_size):
        spans = [s for s in record.select(rank=rank).spans if s.end_ns is not None]
        forwards = sorted(s.start_ns for s in spans if s.phase == "forward")
        ends = sorted(s.end_ns or 0 for s in spans if s.phase == "backward")
        for number, end in enumerate(ends):
            since = ends[number - 1] if number else 0
            begun = [start for start in forwards if since <= start < end]
            if begun:
                steps.append((rank - num_servers, number, begun[0], end))
    if not steps:
        raise ValueError("no worker of this record has a forward and a backward pass: was it made with record=True?")
    first = min(start for _, _, start, _ in steps)
    return [WorkerBusy(w, number, (start - first) / 1e9, (end - first) / 1e9) for w, number, start, end in steps]


def computing_under_clock(stretches: Iterable[Any]) -> list[WorkerBusy]:
    """When the workers of a simulated run computed, from its `stretches`."""
    return [WorkerBusy(s.worker, s.number, s.start, s.end) for s in stretches if s.kind == "compute"]


def worker_timeline(
    runs: Mapping[str, Sequence[WorkerBusy]],
    until: float | None = None,
    slow: int | None = None,
    title: str = "A straggler, and who waits for it",
    label: str = "",
) -> Figure:
    """Draw a panel for each run on one time axis: filled while a worker computes, with the step's number; else hollow.

    At the right of each panel stands how many steps all workers have done together at the right end of the axis.

    Args:
        runs: by name; the workers' steps.
        until: seconds that are drawn; None: to the end of the shortest run.
        slow: the straggler, which is labelled; None: nobody is.
        title: what the figure is about.
        label: where the times come from, printed under the title.

    Raises:
        ValueError: no run, or one without a step.
    """
    if not runs or not all(runs.values()):
        raise ValueError(f"runs with steps are needed; got { ({name: len(busy) for name, busy in runs.items()}) }")
    end = until or min(max(b.end for b in busy) for busy in runs.values())
    sizes = [1 + max(b.worker for b in busy) for busy in runs.values()]
    with style():
        fig = new_figure(height=1.5 + 0.3 * sum(sizes) + 0.32 * len(sizes))
        all_axes = fig.subplots(len(runs), 1, sharex=True, squeeze=False, height_ratios=sizes)[:, 0]
        for (name, busy), ax, num_workers in zip(runs.items(), all_axes, sizes, strict=True):
            _draw(ax, busy, num_workers, end, slow)
            done, waited = sum(b.end <= end for b in busy), _waiting(busy, num_workers, end)
            words = f"{name}: {done} steps done, workers wait {waited:.0%} of the time"
            ax.annotate(words, (0, 1), (0, 2), xycoords="axes fraction", textcoords="offset points", weight="bold")
        all_axes[-1].set_xlabel("seconds")
        headline_above(fig, title, label)
        computes = Patch(fc=MUTED, label="computes its step of that number")
        legend_below(fig, [computes, Patch(fc="white", ec=ALARM, hatch="////", lw=0.8, label="waits")])
    return fig


def _waiting(busy: Sequence[WorkerBusy], num_workers: int, end: float) -> float:
    """The share of all workers' time until `end`, or until a worker's last step ends, in which they do not compute."""
    waited = whole = 0.0
    for worker in range(num_workers):
        own = [b for b in busy if b.worker == worker]
        last = min(end, max((b.end for b in own), default=0.0))
        whole += last
        waited += last - sum(max(0.0, min(b.end, last) - b.start) for b in own)
    return waited / whole if whole else 0.0


def _draw(ax: Axes, busy: Sequence[WorkerBusy], num_workers: int, end: float, slow: int | None) -> None:
    for worker in range(num_workers):
        ax.axhspan(worker - 0.46, worker + 0.46, color=LANE, lw=0, zorder=0)
        own = [b for b in busy if b.worker == worker and b.start < end]
        last = max((b.end for b in own), default=0.0)
        ax.add_patch(
            Rectangle((0, worker - _BAR / 2), min(last, end), _BAR, fc="white", ec=ALARM, hatch="////", lw=0, alpha=0.5)
        )
        for b in own:
            width, color = min(b.end, end) - b.start, rank_color(worker)
            ax.add_patch(Rectangle((b.start, worker - _BAR / 2), width, _BAR, fc=color, ec="white", lw=0.8))
            if width > 0.022 * end:
                middle = b.start + width / 2
                ax.text(middle, worker, str(b.number), ha="center", va="center_baseline", size=8, color=ink_on(color))
    ax.set_xlim(0, end)
    ax.set_ylim(num_workers - 0.5, -0.5)
    names = [f"worker {worker}" + " (slow)" * (worker == slow) for worker in range(num_workers)]
    ax.set_yticks(range(num_workers), names, color=INK)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
