"""A training step with its buckets: what the rank computes, what is sent meanwhile, and where it only waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from dtlearn.runtime.record.intervals import Interval, length, union, without
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.record.training_steps import RecordedStep, arrival, recorded_steps

from ..phase_strip import phase_colors
from ..style import (
    ALARM,
    INK,
    LANE,
    WIDTH,
    headline,
    legend_below,
    new_figure,
    op_patch,
    op_style,
    style,
)
from ..units import format_seconds
from ..waits import moving_starts

# Within a rank's lane of height 1, its middle at 0: top and height of each strip.
_COMPUTE, _MARKS, _COMMUNICATE = (-0.42, 0.30), -0.06, (-0.02, 0.26)
_EXPOSED = 0.275  # the line below what is exposed
_WORDS = 0.385  # where its duration stands
_AXES_INCHES = WIDTH * 0.88
_INCHES_PER_CHARACTER = 0.075
_DARK = 0.5  # brightness below which text on a bar is white
_SLOWER = 1.1  # times as long as in the first picture: worth a word


def bucket_timeline(
    records: Record | Mapping[str, Record],
    title: str = "Buckets of a training step",
    *,
    ranks: int | None = None,
) -> Figure:
    """Draw recorded training steps: one picture per record, below each other, on one time axis.

    Each rank has two strips. Above: its computation, by phase; where the strip is empty, the rank computes nothing.
    Below: its calls, each from when its data could move (all ranks had launched it; on an emulated link, whose ports
    send one thing at a time, also its turn had come) until the data had arrived. A triangle marks each launch. Buckets
    are numbered in the order in which they are launched. The exposed communication is underlined; see
    `dtlearn.runtime.record.training_steps`, which says how it is known. A phase that computes longer than in the first
    of several records says how many times.

    Args:
        records: one or a few steps, with phases (`run_ranks(..., record=True)`); with several records, by name.
        title: what the figure is about.
        ranks: how many ranks to draw, from 0; None: all.

    Raises:
        ValueError: no record, or one without a training step: no forward pass was recorded.
    """
    named = {"": records} if isinstance(records, Record) else dict(records)
    if not named:
        raise ValueError("there is no record to draw")
    panels = {name: _Panel(record, ranks) for name, record in named.items()}
    for name, panel in panels.items():
        if not panel.steps:
            about = f" of {name!r}" if name else ""
            raise ValueError(f"the record{about} holds no training step: record a forward and a backward pass")
    with style():
        right = max(panel.last - panel.first for panel in panels.values()) / 1e6 * 1.01
        rows = [panel.num_ranks for panel in panels.values()]
        fig = new_figure(height=1.6 + 0.78 * sum(rows) + 0.3 * (len(rows) - 1))
        all_axes = fig.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=rows)[:, 0]
        first = next(iter(panels.values()))
        for (name, panel), ax in zip(panels.items(), all_axes, strict=True):
            panel.draw(ax, right, {} if panel is first else first.computing)
            if name:
                ax.set_ylabel(name, weight="bold", size=11)
        all_axes[-1].set_xlabel("time since the step began (ms)")
        labels = {panel.record.label for panel in panels.values()} - {""}
        headline(all_axes[0], title, "run: " + "; ".join(sorted(labels)) if labels else "")
        legend_below(fig, _legend(panels), columns=4)
    return fig


class _Panel:
    """One record on one pair of axes. Times are in ms since its first step began."""

    def __init__(self, record: Record, ranks: int | None) -> None:
        self.record = record
        self.num_ranks = record.world_size if ranks is None else min(ranks, record.world_size)
        self.steps = [step for rank in range(self.num_ranks) for step in recorded_steps(record, rank)]
        self.first = min((step.begin for step in self.steps), default=0)
        self.last = max((step.end for step in self.steps), default=0)
        self.moving = moving_starts(record, self.steps)
        self.colors = phase_colors(record)
        self.ops = {event.op for step in self.steps for event in step.events}
        self.launches = any(event.asynchronous for step in self.steps for event in step.events)
        self.computing = {(s.rank, p): length(pieces) for s in self.steps[::-1] for p, pieces in _computing(s).items()}

    def draw(self, ax: Axes, right: float, usual: Mapping[tuple[int, str], float]) -> None:
        self.ax, self.right, self.usual = ax, right, usual
        for rank in range(self.num_ranks):
            ax.axhspan(rank - 0.47, rank + 0.47, color=LANE, linewidth=0, zorder=0)
        for step in self.steps:
            self._computation(step)
            self._communication(step)
            self._exposed(step)
        ax.set_xlim(-0.005 * right, right)
        ax.set_ylim(self.num_ranks - 0.48, -0.52)
        ax.set_yticks(range(self.num_ranks), [f"rank {r}" for r in range(self.num_ranks)])
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.grid(axis="x")

    def _x(self, ns: float) -> float:
        return (ns - self.first) / 1e6

    def _bar(self, rank: int, at: tuple[float, float], begin: float, end: float, **look: Any) -> None:
        width = max(end - begin, 0.0012 * self.right)  # what is far shorter than a pixel still leaves a line
        edge = {"edgecolor": "white", "linewidth": 0.6 if width > 0.006 * self.right else 0}
        self.ax.add_patch(Rectangle((begin, rank + at[0]), width, at[1], **{**edge, **look}))

    def _name(self, texts: list[str], rank: int, at: tuple[float, float], begin: float, end: float, color: str) -> None:
        """Write the first of the texts that fits."""
        room = (end - begin) / self.right * _AXES_INCHES / _INCHES_PER_CHARACTER
        if text := next((text for text in texts if room > len(text) + 0.5), ""):
            self.ax.text(
                (begin + end) / 2, rank + at[0] + at[1] / 2, text, ha="center", va="center", size=8, color=color
            )

    def _waits(self, step: RecordedStep) -> list[Interval]:
        """The exposed communication, without moments and gaps too short to be seen."""
        pixel = 0.001 * self.right * 1e6
        return union([wait for wait in step.exposed if wait[1] - wait[0] > 0.5 * pixel], gap=3 * pixel)

    def _computation(self, step: RecordedStep) -> None:
        for span in step.spans:
            if span.end_ns is None:
                continue
            pieces = without([(span.start_ns, span.end_ns)], self._waits(step))
            color = self.colors[span.phase]
            ink = "white" if _brightness(color) < _DARK else INK
            for a, b in pieces:
                self._bar(step.rank, _COMPUTE, self._x(a), self._x(b), facecolor=color)
            a, b = max(pieces, key=lambda piece: piece[1] - piece[0], default=(0.0, 0.0))
            self._name(self._phase_texts(step, span.phase), step.rank, _COMPUTE, self._x(a), self._x(b), ink)

    def _phase_texts(self, step: RecordedStep, phase: str) -> list[str]:
        seconds = length(_computing(step)[phase]) / 1e9
        timed = f"{phase} {format_seconds(seconds)}"
        usual = self.usual.get((step.rank, phase), 0.0) / 1e9
        slower = [f"{timed}, {seconds / usual:.1f}x as long"] if usual and seconds > _SLOWER * usual else []
        return [*slower, timed, phase]

    def _communication(self, step: RecordedStep) -> None:
        numbers = {event.seq: str(number) for number, event in enumerate(step.buckets)}
        rows, num_rows = self._rows(step)
        height = _COMMUNICATE[1] / num_rows
        for event in step.events:
            end = arrival(event)
            strip = (_COMMUNICATE[0] + rows[event.seq] * height, height)
            begin, until = self._x(self.moving[event.rank, event.seq]), self.right if end is None else self._x(end)
            look = op_style(event.op)
            self._bar(step.rank, strip, begin, until, facecolor=look.color, hatch=look.hatch)
            self._name([numbers.get(event.seq, "")], step.rank, strip, begin, until, "white")
        marks = [self._x(event.start_ns) for event in step.events if event.asynchronous]
        self.ax.plot(marks, [step.rank + _MARKS] * len(marks), "v", color=INK, markersize=3.5, linewidth=0)

    def _rows(self, step: RecordedStep) -> tuple[dict[int, int], int]:
        """The row of each call, and how many rows there are: calls whose data moves at the same time need several."""
        rows: dict[int, int] = {}
        free: list[int] = []
        for event in sorted(step.events, key=lambda e: self.moving[e.rank, e.seq]):
            begin, end = self.moving[event.rank, event.seq], arrival(event) or self.last
            row = next((n for n, at in enumerate(free) if at <= begin), len(free))
            free[row : row + 1] = [end]
            rows[event.seq] = row
        return rows, max(1, len(free))

    def _exposed(self, step: RecordedStep) -> None:
        waits = self._waits(step)
        for a, b in waits:
            ends = [self._x(a), self._x(b)]
            self.ax.plot(
                ends, [step.rank + _EXPOSED] * 2, color=ALARM, linewidth=3, solid_capstyle="butt", gid="exposed"
            )
        if not step.exposed:
            return
        text = f"{format_seconds(step.exposed_seconds)} exposed"
        if len(blocking := [event for event in step.buckets if not event.asynchronous]) > 1:
            text = f"{len(blocking)} calls, {text}"
        half = len(text) / 2 * _INCHES_PER_CHARACTER / _AXES_INCHES * self.right
        longest = max(waits, key=lambda w: w[1] - w[0], default=step.exposed[-1])
        middle = min(max(self._x(sum(longest) / 2), half), self.right - half)
        self.ax.text(middle, step.rank + _WORDS, text, ha="center", va="center", size=9, color=ALARM, weight="bold")


def _computing(step: RecordedStep) -> dict[str, list[Interval]]:
    """When the rank computed, by phase: its spans without what is exposed."""
    pieces: dict[str, list[Interval]] = {}
    for span in step.spans:
        if span.end_ns is not None:
            pieces.setdefault(span.phase, []).extend(without([(span.start_ns, span.end_ns)], step.exposed))
    return pieces


def _brightness(color: str) -> float:
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.3 * red + 0.59 * green + 0.11 * blue


def _legend(panels: Mapping[str, _Panel]) -> list[Patch | Line2D]:
    colors = {phase: color for panel in panels.values() for phase, color in panel.colors.items()}
    handles: list[Patch | Line2D] = [Patch(facecolor=color, label=phase) for phase, color in colors.items()]
    handles += [op_patch(op) for op in sorted({op for panel in panels.values() for op in panel.ops})]
    if any(panel.launches for panel in panels.values()):
        handles.append(Line2D([], [], color=INK, marker="v", markersize=4, linewidth=0, label="launched"))
    if any(step.exposed for panel in panels.values() for step in panel.steps):
        handles.append(Line2D([], [], color=ALARM, linewidth=3, label="exposed: the rank only waits for it"))
    return handles
