"""How a job's time looks in every picture of the chapter: one colour and one hatch for what it does; and its unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ..memory.categories import Look
from ..style import INK, LANE

# The kinds of `JobLife`; in grey, from dark to light: what was lost, training, saves, restarts.
LIFE: Mapping[str, Look] = {
    "training": Look("#56B4E9", ""),
    "save": Look("#F0E442", "|||"),
    "lost": Look("#B23A00", "////"),
    "restart": Look("#c9cdd2", "...."),
}
WORDS = {"training": "training", "save": "save", "lost": "lost: trained again", "restart": "restart"}
_UNITS = (("days", 86400.0, 3 * 86400.0), ("hours", 3600.0, 2 * 3600.0), ("min", 60.0, 180.0), ("s", 1.0, 2.0))
BAR = 0.7  # of a lane's height


def time_unit(longest: float) -> tuple[str, float]:
    """The unit for an axis of so many seconds: its name, and how many seconds it has."""
    return next(((name, size) for name, size, least in _UNITS if longest >= least), ("ms", 1e-3))


def short_time(seconds: float) -> str:
    """Seconds in the unit that fits: "340 ms", "4.1 s", "6 hours"."""
    name, size = time_unit(seconds) if not 1 <= seconds < 2 else ("s", 1.0)
    value = seconds / size
    return f"{value:.0f} {name}" if value >= 10 else f"{value:.1f} {name}".replace(".0 ", " ")


def patch(look: Look, words: str) -> Patch:
    """A legend entry."""
    return Patch(facecolor=look.color, edgecolor=_hatch_ink(look), hatch=look.hatch, linewidth=0, label=words)


def draw_spans(ax: Axes, spans: Iterable[tuple[float, float]], row: float, look: Look, height: float = BAR) -> None:
    """Fill each (start, end) of a lane, with a hatch and without an edge, which would hide short ones."""
    boxes = [(start, end - start) for start, end in spans if end > start]
    if boxes:
        faces: dict[str, Any] = {
            "facecolors": look.color,
            "edgecolors": _hatch_ink(look),
            "hatch": look.hatch,
            "linewidth": 0,
        }
        ax.broken_barh(boxes, (row - height / 2, height), zorder=2, **faces)


def lanes(ax: Axes, names: Iterable[str], right: float) -> None:
    """Draw empty lanes from top to bottom, from time 0 to `right`, with their names."""
    names = list(names)
    for row in range(len(names)):
        ax.axhspan(row - 0.46, row + 0.46, color=LANE, lw=0, zorder=0)
    ax.set_yticks(range(len(names)), names, color=INK)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(0, right)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _hatch_ink(look: Look) -> str:
    """The colour of a hatch: white on dark faces, dark on light ones."""
    return "white" if look.color in ("#B23A00", "#0072B2", "#009E73", "#D55E00", "#5f6368") else "#5a5a5a"
