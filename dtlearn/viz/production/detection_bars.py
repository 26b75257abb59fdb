"""Who noticed which fault after how long, a bar each: filled if the notice names the rank, hollow if it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..style import ALARM, INK, MUTED, headline_above, legend_below, new_figure, style
from .looks import short_time, time_unit

if TYPE_CHECKING:
    from dtlearn.production.faults.story import Detection

NAMED = "#0072B2"
_GAP = 0.5  # rows between two faults
_BAR = 0.62


def detection_bars(
    detections: Sequence[Detection], title: str = "Who notices which fault, and when", label: str = ""
) -> Figure:
    """Draw the seconds from a fault to each notice: a panel for each launcher, a row for each fault and noticer.

    Args:
        detections: of `detection_times`, or of several stories; at most one of each fault, launcher and noticer.
        title: what the figure is about.
        label: printed under the title.

    Raises:
        ValueError: nobody noticed anything.
    """
    if not detections:
        raise ValueError("at least one detection is needed; a fault that nobody notices has none")
    groups = rows_of(detections)
    launchers = list(dict.fromkeys(d.launcher for d in detections))
    longest = max(detection.seconds for detection in detections)
    unit, size = time_unit(longest)
    seconds = {(d.fault, d.launcher, d.noticer): d for d in detections}
    num_rows = sum(1 + _GAP + len(noticers) for noticers in groups.values())
    with style():
        fig = new_figure(height=1.5 + 0.24 * num_rows)
        panels = fig.subplots(1, len(launchers), sharex=True, sharey=True, squeeze=False)[0]
        row, ticks, names = 0.0, list[float](), list[str]()
        for fault, noticers in groups.items():
            look = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "weight": "bold", "size": 10}
            for panel in panels:
                panel.annotate(fault, (0, row), **look)
            for noticer in noticers:
                row += 1
                ticks.append(row)
                names.append(noticer)
                for panel, launcher in zip(panels, launchers, strict=True):
                    _draw(panel, seconds.get((fault, launcher, noticer)), row, size)
            row += 1 + _GAP
        panels[0].set_yticks(ticks, names, color=INK)
        panels[0].set_ylim(row - _GAP - 0.3, -0.6)
        panels[0].set_xlim(0, 1.2 * longest / size)
        for panel, launcher in zip(panels, launchers, strict=True):
            panel.tick_params(axis="y", length=0)
            panel.grid(axis="x", color=MUTED, alpha=0.25)
            panel.set_xlabel(f"from the fault to the notice ({unit})")
            panel.set_title(f"started by {launcher}", loc="left", size=10, weight="normal", pad=3)
        headline_above(fig, title, label)
        named = Patch(fc=NAMED, label="names the faulty rank")
        legend_below(fig, [named, Patch(fc="white", ec=ALARM, hatch="////", label="says only that something is wrong")])
    return fig


def detection_words(detections: Sequence[Detection]) -> str:
    """The picture in words."""
    said: dict[tuple[str, str], list[str]] = {}
    for d in sorted(detections, key=lambda d: d.seconds):
        words = f"{d.noticer} after {short_time(d.seconds)}{'' if d.names_rank else ' without the rank'}"
        said.setdefault((d.fault, d.launcher), []).append(words)
    parts = [f"{fault} under {launcher}: {', '.join(words)}" for (fault, launcher), words in sorted(said.items())]
    return f"Who noticed which fault after how long. {'; '.join(parts)}."


def rows_of(detections: Sequence[Detection]) -> dict[str, list[str]]:
    """The noticers of each fault: the earliest first, by whichever launcher that was."""
    earliest: dict[str, dict[str, float]] = {}
    for d in detections:
        of_fault = earliest.setdefault(d.fault, {})
        of_fault[d.noticer] = min(d.seconds, of_fault.get(d.noticer, d.seconds))
    return {fault: sorted(of_fault, key=of_fault.__getitem__) for fault, of_fault in earliest.items()}


def _draw(ax: Axes, detection: Detection | None, row: float, size: float) -> None:
    if detection is None:
        return
    at = detection.seconds / size
    if detection.names_rank:
        ax.barh(row, at, _BAR, color=NAMED)
    else:
        ax.barh(row, at, _BAR, fc="white", ec=ALARM, hatch="////", lw=0.9)
    ax.annotate(short_time(detection.seconds), (at, row), (5, 0), textcoords="offset points", va="center", size=9)
