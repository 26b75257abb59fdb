"""Published numbers beside what the planner predicts: the ratio of each, its tolerance, and which are outside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..style import ALARM, LANE, MUTED, headline_above, legend_below, new_figure, style

if TYPE_CHECKING:
    from dtlearn.planner.score import JudgedNumber, PublishedNumber

INSIDE = "#0072B2"
_LOW, _HIGH = 0.55, 1.8  # ratios that are drawn; what is beyond stands at the edge
_ROW, _ENTRY = 0.16, 0.036  # inches of a group, and of each number in it


class ScoredNumber(NamedTuple):
    """A number that can be drawn.

    Attributes:
        name: of the entry.
        ratio: predicted / published.
        low, high: ratios at the ends of the tolerance.
        inside: whether the ratio is between them.
    """

    name: str
    ratio: float
    low: float
    high: float
    inside: bool


def scored_by_group(judged: Sequence[JudgedNumber]) -> dict[str, list[ScoredNumber]]:
    """What can be drawn, by group in alphabetical order, each group by its ratio.

    A number that is published as 0, or that the planner cannot predict, has no ratio and is left out.
    """
    found: dict[str, list[ScoredNumber]] = {}
    for row in sorted(judged, key=lambda row: row.entry.group):
        expected = row.entry.expected
        if row.predicted is None or isinstance(expected, bool) or not isinstance(expected, int | float) or not expected:
            continue
        width = _tolerance(row.entry)
        scored = ScoredNumber(row.entry.id, row.predicted / expected, 1 - width, 1 + width, row.inside)
        found.setdefault(row.entry.group or "no group", []).append(scored)
    return {group: sorted(rows, key=lambda row: row.ratio) for group, rows in found.items()}


def score_picture(judged: Sequence[JudgedNumber], title: str = "", label: str = "") -> Figure:
    """Draw predicted / published of each number, with its tolerance, by group.

    Args:
        judged: of `planner.score`.
        title: what the figure is about; "": how many are inside their tolerance.
        label: printed under the title; "": what the picture shows.

    Raises:
        ValueError: no number that has a ratio.
    """
    groups = scored_by_group(judged)
    if not groups:
        raise ValueError(f"numbers with a prediction are needed; of {len(judged)} none has one")
    inside, number = (
        sum(f(row) for rows in groups.values() for row in rows) for f in (lambda r: r.inside, lambda _: 1)
    )
    halves = _halves(groups)
    inches = max(sum(_ROW + _ENTRY * len(groups[group]) for group in half) for half in halves)
    with style():
        fig = new_figure(height=1.75 + inches)
        headline_above(
            fig,
            title or f"{inside} of {number} predictions are inside the tolerance of the published number",
            label or "each number has its own tolerance; a group is a source, and its numbers stand in rising order",
        )
        for ax, half in zip(fig.subplots(1, 2), halves, strict=True):
            _draw_half(ax, {group: groups[group] for group in half}, inches)
        legend_below(fig, _handles(), columns=3)
    return fig


def score_words(judged: Sequence[JudgedNumber]) -> str:
    """The picture in words: how many are inside by group, and which are not."""
    groups = scored_by_group(judged)
    counts = ", ".join(f"{group} {sum(r.inside for r in rows)} of {len(rows)}" for group, rows in groups.items())
    missed = [f"{row.name} {row.ratio:.2f}" for rows in groups.values() for row in rows if not row.inside]
    return (
        f"Predicted divided by published for each number, by group. Inside the tolerance: {counts}. "
        f"Outside, with the ratio: {', '.join(missed) or 'none'}."
    )


def _tolerance(entry: PublishedNumber) -> float:
    """The widest tolerance, as a share of the published number; read as `PublishedNumber.accepts` reads it."""
    given = [
        number if kind == "rel" else number / abs(entry.expected)
        for kind, number in entry.tolerance.items()
        if kind in ("rel", "abs") and isinstance(number, int | float)
    ]
    return float(max(given, default=0.1))


def _halves(groups: dict[str, list[ScoredNumber]]) -> tuple[list[str], list[str]]:
    """The groups in two columns of about the same height, in order."""
    names, heights = list(groups), [_ROW + _ENTRY * len(rows) for rows in groups.values()]
    cut = min(range(1, len(names) + 1), key=lambda n: max(sum(heights[:n]), sum(heights[n:])))
    return names[:cut], names[cut:]


def _draw_half(ax: Axes, groups: dict[str, list[ScoredNumber]], inches: float) -> None:
    at, middles = 0.0, []
    for stripe, rows in enumerate(groups.values()):
        height = _ROW + _ENTRY * len(rows)
        if stripe % 2 == 0:
            ax.axhspan(at, at + height, color=LANE, lw=0, zorder=0)
        middles.append(at + height / 2)
        for place, row in enumerate(rows):
            _draw_number(ax, row, at + _ROW / 2 + _ENTRY * (place + 0.5))
        words = f"{sum(row.inside for row in rows)} of {len(rows)}"
        ax.text(1.01, at + height / 2, words, transform=ax.get_yaxis_transform(), va="center", size=9)
        at += height
    ax.axvline(1, color=MUTED, lw=1, zorder=1)
    ax.set(xscale="log", xlim=(_LOW, _HIGH), ylim=(inches, 0), xlabel="predicted / published")
    ax.xaxis.set_major_locator(FixedLocator([0.6, 0.8, 1.0, 1.25, 1.6]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_yticks(middles, [group.replace("_", " ") for group in groups], size=9)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _draw_number(ax: Axes, row: ScoredNumber, y: float) -> None:
    low, high = max(row.low, _LOW), min(row.high, _HIGH)
    ax.plot([low, high], [y, y], color="#aab0b6", lw=1.3, solid_capstyle="butt", zorder=2, gid="tolerance")
    x = math.exp(min(max(math.log(max(row.ratio, 1e-9)), math.log(_LOW)), math.log(_HIGH)))
    if row.inside:
        ax.plot(x, y, "o", ms=4, color=INSIDE, zorder=3, gid="inside")
        return
    ax.plot(x, y, "X", ms=6.5, color=ALARM, mec="white", mew=0.5, zorder=4, gid="outside", clip_on=False)


def _handles() -> list[Line2D]:
    return [
        Line2D([], [], color=INSIDE, marker="o", ls="none", ms=5, label="inside"),
        Line2D([], [], color=ALARM, marker="X", ls="none", ms=7, label="outside"),
        Line2D([], [], color="#aab0b6", lw=2, label="tolerance of the number"),
    ]
