"""When each method sends, and how much: a lane for each, a bar for each step, on one clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from ..style import INK, LANE, MUTED, headline, new_figure, style
from ..units import format_bytes, format_seconds
from .looks import require_methods

if TYPE_CHECKING:
    from dtlearn.gradient_compression.comparing.run import MethodRun

_HEIGHT, _LEAST = 0.8, 0.035  # of a lane: the highest bar, and the lowest that can be seen


def sent_over_time(
    runs: Iterable[MethodRun], title: str = "When a rank sends, and how much", label: str = ""
) -> Figure:
    """Draw a bar for each step that sends: as wide as the step lasts, as high as its bytes; the total at the right.

    Args:
        runs: on one link, at most ten. The highest bar of all has the full height; the smallest stay just visible.
        title: what the figure is about.
        label: where the runs come from, printed under the title; "": as they say.

    Raises:
        ValueError: no run, too many, or none that sent anything.
    """
    shown = {run.name: run for run in runs}
    names = require_methods(shown)
    most = max(max(run.sent) for run in shown.values())
    if most <= 0:
        raise ValueError(f"a run that sends is needed; got {names}, of which none sent a byte")
    end = max(sum(run.seconds) for run in shown.values())
    with style():
        fig = new_figure(height=1.3 + 0.42 * len(shown))
        ax = fig.add_subplot()
        for row, run in enumerate(shown.values()):
            bottom = row + _HEIGHT / 2
            ax.barh(row, sum(run.seconds), _HEIGHT + 0.06, color=LANE, zorder=0)
            for start, seconds, sent in zip(run.seconds_before, run.seconds, run.sent, strict=True):
                height = max(_LEAST, _HEIGHT * sent / most)
                if sent > 0:
                    ax.bar(start, -height, seconds * 0.8, bottom, align="edge", color=INK, lw=0, zorder=2)
            last = sum(run.seconds)
            words = f"{format_bytes(sum(run.sent))} in {format_seconds(last)}"
            ax.text(last + 0.01 * end, row, words, va="center", size=9, zorder=3)
        ax.set_ylim(len(shown) - 0.4, -0.6)
        ax.set_yticks(range(len(shown)), names)
        ax.tick_params(axis="y", length=0)
        ax.set(xlabel="seconds", xlim=(0, 1.22 * end))
        ax.spines["left"].set_visible(False)
        words = f"full height: {format_bytes(most)} in a step"
        headline(ax, title, "; ".join(filter(None, (label or next(iter(shown.values())).label, words))))
        ax.grid(axis="x", color=MUTED, alpha=0.25)
    return fig
