"""A straggler's shadow: what each rank did in some steps of a record, and who waited for the rank that came last."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dtlearn.runtime.record.collectives import collectives
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import counted

from ..memory.categories import Look
from ..style import ALARM, INK, MUTED, headline, legend_below, new_figure, style
from .looks import BAR, draw_spans, lanes, patch, short_time, time_unit

if TYPE_CHECKING:
    from dtlearn.production.stragglers import StragglerReport

INPUT = "input"  # the phase in which a rank waits for its data
LOOKS = {
    "waits for its data": Look("#F0E442", "|||"),
    "computes": Look("#56B4E9", ""),
    "messages": Look("#009E73", "---"),
    "collective": Look("#3f444b", ""),
}
_MORE = {
    "input": "Rank {} waits {} longer for its data",
    "compute": "Rank {} computes {} longer",
    "network": "Messages of rank {} take {} longer",
}
FromTo = tuple[float, float]


class StepOfRank(NamedTuple):
    """A step of a rank, in ns: from the end of one collective to the end of the next.

    Attributes:
        parts: (start, end) of what it did, by the names of `LOOKS`.
        arrival: when it came to the collective.
        last: when the last rank came.
        late: which rank that was.
    """

    parts: dict[str, list[FromTo]]
    arrival: float
    last: float
    late: int


def steps_in(record: Record, op: str = "all_reduce") -> list[dict[int, StepOfRank]]:
    """The steps of a record, by rank; a step ends with a collective of all ranks, and the first one's start is unknown.

    Raises:
        ValueError: fewer than two such collectives.
    """
    ends = [
        calls
        for calls in collectives(e for e in record.events if e.op == op)
        if len(calls) == record.world_size and all(call.end_ns is not None for call in calls.values())
    ]
    ends.sort(key=lambda calls: min(call.start_ns for call in calls.values()))
    if len(ends) < 2:
        raise ValueError(f"two or more calls of {op} that all ranks made are needed; the record has {len(ends)}")
    steps = []
    for before, calls in pairwise(ends):
        late = max(calls, key=lambda rank: calls[rank].start_ns)
        last = calls[late].start_ns
        step = {}
        for rank, call in sorted(calls.items()):
            begin, arrival, end = before[rank].end_ns or 0, call.start_ns, call.end_ns or 0
            parts = _between(record, rank, begin, arrival)
            step[rank] = StepOfRank({**parts, "collective": [(max(arrival, last), end)]}, arrival, last, late)
        steps.append(step)
    return steps


def straggler_shadow(
    record: Record, report: StragglerReport, steps: int = 4, op: str = "all_reduce", title: str = "", label: str = ""
) -> Figure:
    """Draw a lane for each rank: what it did, and hatched how long it waited for the last one, in the shadow of that.

    Args:
        record: of a run with `record=True`, such as `production.stragglers.slow_run` gives.
        report: what `find_stragglers` says of it; the title has its worst straggler and what that costs.
        steps: how many are drawn; consecutive ones, from the shortest stretch.
        op: the collective that ends a step.
        title: "": who is late, by how much, and what that costs.
        label: printed under the title; "": the record's.

    Raises:
        ValueError: fewer than two such collectives.
    """
    shown = _shortest(steps_in(record, op), steps)
    spans = [part for step in shown for own in step.values() for spans in own.parts.values() for part in spans]
    begin, end = min(start for start, _ in spans), max(stop for _, stop in spans)
    unit, size = time_unit((end - begin) / 1e9)
    slow = report.stragglers[0].rank if report.stragglers else None
    with style():
        fig = new_figure(height=1.95 + 0.42 * record.world_size)
        ax = fig.add_subplot()
        names = [f"rank {rank}" + " (slow)" * (rank == slow) for rank in range(record.world_size)]
        lanes(ax, names, (end - begin) / 1e9 / size)
        for step in shown:
            for rank, own in step.items():
                _draw(ax, own, rank, begin, 1e9 * size)
            _mark_last(ax, step, begin, 1e9 * size)
        ax.set_xlabel(f"time ({unit})")
        headline(
            ax, title or shadow_title(report), label or f"run: {record.label}; {len(shown)} of {report.steps} steps"
        )
        present = {name for step in shown for own in step.values() for name, spans in own.parts.items() if spans}
        entries: list[Artist] = [patch(look, name) for name, look in LOOKS.items() if name in present]
        entries.append(Patch(fc="white", ec=ALARM, hatch="////", lw=0.8, label="waits for the last rank: its shadow"))
        entries.append(Line2D([], [], color=INK, ls="", marker=">", label="comes last"))
        legend_below(fig, entries, columns=3)
    return fig


def shadow_title(report: StragglerReport) -> str:
    """Who is late, by how much, and what it costs all others, in a step."""
    if not report.stragglers:
        return "No rank is late again and again"
    worst = report.stragglers[0]
    more = _MORE[worst.kind].format(worst.rank, short_time(worst.seconds))
    share, verb = 100 * worst.seconds / report.step_seconds, "loses" if len(report.rows) == 2 else "lose"
    return f"{more} a step: {counted(len(report.rows) - 1, 'other rank')} {verb} {share:.0f} % of the time"


def shadow_words(record: Record, report: StragglerReport) -> str:
    """The picture in words."""
    waits = ", ".join(f"rank {row.rank} {short_time(max(0.0, row.waits))}" for row in report.rows)
    return (
        f"Steps of {record.world_size} ranks in lanes. {shadow_title(report)}. Of a step of "
        f"{short_time(report.step_seconds)} the ranks wait at the collective: {waits} (medians)."
    )


def _between(record: Record, rank: int, begin: int, arrival: int) -> dict[str, list[FromTo]]:
    """What a rank did between two collectives: input by its phase, messages by their calls, the rest is computation."""
    mine = [e for e in record.events if e.rank == rank and e.is_p2p and begin <= e.start_ns < arrival]
    messages: list[FromTo] = [(min(e.start_ns for e in mine), max(e.end_ns or arrival for e in mine))] if mine else []
    inputs: list[FromTo] = [
        (max(s.start_ns, begin), min(s.end_ns or arrival, arrival))
        for s in record.spans
        if s.rank == rank and s.phase == INPUT and s.start_ns < arrival and (s.end_ns or arrival) > begin
    ]
    computes, free = [], float(begin)
    for start, end in sorted([*messages, *inputs]):
        if start > free:
            computes.append((free, start))
        free = max(free, end)
    return {
        "waits for its data": inputs,
        "computes": [*computes, (free, float(arrival))] if arrival > free else computes,
        "messages": messages,
    }


def _shortest(steps: list[dict[int, StepOfRank]], wanted: int) -> list[dict[int, StepOfRank]]:
    """Consecutive steps that take the least time: on a busy machine they say most about the ranks themselves."""
    wanted = max(1, min(wanted, len(steps)))
    windows = [steps[first : first + wanted] for first in range(len(steps) - wanted + 1)]
    return min(windows, key=lambda window: window[-1][0].last - window[0][0].last)


def _draw(ax: Axes, own: StepOfRank, rank: int, begin: float, size: float) -> None:
    for name, look in LOOKS.items():
        draw_spans(ax, [((a - begin) / size, (b - begin) / size) for a, b in own.parts[name]], rank, look)
    if own.last > own.arrival:
        box = [((own.arrival - begin) / size, (own.last - own.arrival) / size)]
        ax.broken_barh(box, (rank - BAR / 2, BAR), fc="white", ec=ALARM, hatch="////", lw=0.8, zorder=2)


def _mark_last(ax: Axes, step: dict[int, StepOfRank], begin: float, size: float) -> None:
    """Draw a line from the rank that came last through the lanes of those that waited for it."""
    one = step[0]
    at = (one.last - begin) / size
    ax.vlines(at, -0.5, len(step) - 0.5, color=INK, lw=1, ls=(0, (2, 2)), zorder=4)
    ax.plot(at, one.late, ">", color=INK, ms=6, mec="white", mew=0.6, zorder=5)
    ax.grid(axis="x", color=MUTED, alpha=0.25)
