"""A step of each ZeRO stage side by side: what a ledger counted, and a bar of what the formula says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..memory.categories import LOOKS, MB, in_order, patch
from ..memory.stack import draw_phases, draw_stack
from ..style import ALARM, INK, headline_above, legend_below, new_figure, style

if TYPE_CHECKING:
    from dtlearn.memory.ledger.record import MemoryRecord

_BAR, _WIDTH, _END = 1.07, 0.16, 1.3  # left end and width of the formula's bar, and of all, as shares of the step


def stage_memory(
    records: Mapping[str, MemoryRecord],
    formulas: Mapping[str, Mapping[str, int]],
    title: str = "Memory over one step, by stage",
    label: str = "",
    moment: str = "backward",
) -> Figure:
    """Draw one step for each stage with one scale of bytes, and the bytes of a formula as a bar beside each.

    A line joins the end of the phase `moment` with the bar: so many bytes of the formula's categories lie there then.

    Args:
        records: by the stage's name; at most four stand in a row. Each fills its picture from its beginning to its end.
        formulas: {stage: {category: bytes}} at the end of `moment`.
        title: what the figure is about.
        label: where the records come from, printed under the title.
        moment: name of the phase at whose end record and formula are compared.

    Raises:
        ValueError: no record, another stage in `formulas`, or a record without bytes or without the phase.
    """
    if not records or set(records) != set(formulas) or not all(max(r.live(), default=0) for r in records.values()):
        raise ValueError(
            "a record with bytes alive and a formula are needed for each stage; "
            f"got records of {list(records)}, formulas of {list(formulas)}"
        )
    columns = min(4, len(records))
    rows = -(-len(records) // columns)
    highest = max(record.peak.bytes for record in records.values()) / MB
    with style():
        fig = new_figure(height=1.3 + 2.9 * rows)
        axes = fig.subplots(rows, columns, sharey=True, squeeze=False)
        seen = set[str]()
        for ax, (name, record) in zip(axes.flat, records.items(), strict=False):
            seen |= {*draw_stack(ax, record), *(c for c, n in formulas[name].items() if n)}
            draw_phases(ax, record, names=False)
            _formula(ax, record, formulas[name], moment)
            peak = record.peak
            ax.plot(peak.at, peak.bytes / MB, "v", color=ALARM, ms=7, mec="white", zorder=4)
            words = f"peak {peak.bytes / MB:.1f} MB"
            ax.annotate(words, (1, 1), (-4, 4), ha="right", color=ALARM, size=9, **_in_fractions())
            ax.annotate(name, (0, 1), (0, 4), weight="bold", size=10, **_in_fractions())
            ax.set_xlim(0, _END * record.clock)
            ax.set_ylim(0, 1.16 * highest)
            ax.set_xticks([])
        for ax in list(axes.flat)[len(records) :]:
            ax.set_axis_off()
        for row in axes:
            row[0].set_ylabel("bytes alive (MB = 10⁶ bytes)")
        words = "from left to right the allocations and releases of a step (not time)"
        headline_above(fig, title, "; ".join(filter(None, (label, words))))
        phases = ", ".join(dict.fromkeys(phase.name for record in records.values() for phase in record.phases))
        lines = [
            Line2D([], [], color=INK, lw=0.9, ls=(0, (1, 2)), label=f"phases: {phases}"),
            Line2D([], [], color=ALARM, marker="v", mec="white", ms=7, ls="none", label="peak"),
            Line2D([], [], color=INK, lw=1.2, ls=(0, (4, 2)), label=f"end of {moment}; the bar: by formula"),
        ]
        legend_below(fig, [*(patch(category) for category in reversed(in_order(seen))), *lines], columns=3)
    return fig


def _in_fractions() -> dict[str, Any]:
    return {"xycoords": "axes fraction", "textcoords": "offset points"}


def _formula(ax: Axes, record: MemoryRecord, formula: Mapping[str, int], moment: str) -> None:
    """Draw the formula's bar, its sum, and the line to the moment that it is about."""
    stops = [phase.stop for phase in record.phases if phase.name == moment]
    if not stops:
        raise ValueError(f"no phase {moment!r}: this record has {', '.join(p.name for p in record.phases) or 'none'}")
    at = 0.0
    for category in in_order(formula):
        look, height = LOOKS[category], formula[category] / MB
        place = _BAR * record.clock, height, _WIDTH * record.clock, at
        ax.bar(*place, align="edge", fc=look.color, hatch=look.hatch, ec="white", lw=0)
        at += height
    counted = sum(a.bytes for a in record.at(stops[-1]) if a.category in formula) / MB
    right = (_BAR + _WIDTH) * record.clock
    ax.plot([stops[-1], right], [counted, counted], color=INK, lw=1.2, ls=(0, (4, 2)), zorder=4)
    ax.annotate(
        f"{at:.1f}", (right, max(at, counted)), (0, 3), textcoords="offset points", ha="right", size=9, zorder=5
    )
