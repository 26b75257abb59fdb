"""Ranks as boxes, with what each of them holds and its gradients: who sees an overflow, and who does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from ..style import ALARM, INK, LANE, RANK_COLORS, headline, new_figure, style

OVERFLOW = "inf"  # a gradient of these words is drawn in the colour of alarms


def overflow_boxes(
    ranks: Sequence[Mapping[str, str]], title: str = "One rank's gradients overflow", label: str = ""
) -> Figure:
    """Draw a box for each rank, in it a smaller one for each thing that it holds.

    Args:
        ranks: of each rank, a text for the gradient of each thing, by the thing's name; "inf" marks an overflow.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no ranks, more than four, or a rank that holds nothing.
    """
    if not 1 <= len(ranks) <= len(RANK_COLORS[:4]) or not all(ranks):
        raise ValueError(f"overflow_boxes draws 1 to 4 ranks that hold something; got {[len(each) for each in ranks]}")
    rows = max(len(each) for each in ranks)
    with style():
        fig = new_figure(height=1.0 + 0.55 * rows)
        ax = fig.add_subplot()
        ax.set(xlim=(-0.02, len(ranks) - 0.04), ylim=(-rows - 0.15, 0.75))
        ax.axis("off")
        for rank, held in enumerate(ranks):
            color = RANK_COLORS[rank]
            ax.add_patch(_box(rank, -rows - 0.05, 0.94, rows + 0.7, facecolor="white", edgecolor=color, lw=2))
            ax.text(rank + 0.04, 0.3, f"rank {rank}", color=color, weight="bold", va="center")
            for row, (what, gradient) in enumerate(held.items()):
                inf = gradient == OVERFLOW
                ax.add_patch(_box(rank + 0.04, -row - 0.85, 0.86, 0.8, facecolor=LANE, edgecolor="none"))
                ax.text(rank + 0.07, -row - 0.45, what, va="center")
                words = "gradient: infinite" if inf else f"gradient: {gradient}"
                look: dict[str, Any] = {"color": ALARM, "weight": "bold"} if inf else {"color": INK}
                ax.text(rank + 0.87, -row - 0.45, words, ha="right", va="center", **look)
        headline(ax, title, label)
    return fig


def _box(x: float, y: float, width: float, height: float, **look: Any) -> FancyBboxPatch:
    return FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.03", **look)
