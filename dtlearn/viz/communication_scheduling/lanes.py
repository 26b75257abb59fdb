"""What a rank computes and what is under way, layer by layer, under one order of sends above the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from dtlearn.runtime.record.intervals import Interval, length, without

from ..style import ALARM, INK, LANE, WIDTH, headline_above, ink_on, legend_below, new_figure, style
from ..units import format_seconds

_BAR = 0.78  # of a lane's height
_FIRST, _LAST = "#08306b", "#cfe1f2"  # of the first layer and of the last; between them in steps, also in grey
_AXES_INCHES = WIDTH * 0.86
_INCHES_PER_CHARACTER = 0.08


class LaneBar(NamedTuple):
    """One thing that a rank, or its link, is busy with: a lane and a layer, from `start` to `end` in seconds.

    A layer that is sent in partitions has a bar for each.
    """

    lane: str
    layer: int
    start: float
    end: float


def communication_lanes(
    runs: Mapping[str, Sequence[LaneBar]],
    link: str = "transfers",
    bounds: Mapping[str, float] | None = None,
    title: str = "Backward, transfers and the next forward pass",
    label: str = "",
) -> Figure:
    """Draw a panel for each run on one time axis: a lane for each kind of work, and in it the layers' numbers.

    Lanes stand in the order in which they begin. The darker a bar, the nearer to the input is its layer, and the sooner
    is it needed. Hatched is the time in which the rank computes nothing; its sum stands above, with the makespan.

    Args:
        runs: by name; each from second 0 on.
        link: the lane that is no computation.
        bounds: seconds by run that no order can go below, a dashed line; None: no line.
        title: what the figure is about.
        label: where the times come from, printed under the title.

    Raises:
        ValueError: no run, or one without a bar.
    """
    if not runs or not all(runs.values()):
        raise ValueError(f"runs with bars are needed; got { ({name: len(bars) for name, bars in runs.items()}) }")
    bounds = dict(bounds or {})
    right = 1.01 * max([*(bar.end for bars in runs.values() for bar in bars), *bounds.values()])
    layers = 1 + max(bar.layer for bars in runs.values() for bar in bars)
    lanes = [_lanes(bars) for bars in runs.values()]
    with style():
        fig = new_figure(height=1.45 + sum(0.38 * len(names) + 0.4 for names in lanes))
        shares = [len(names) + 0.3 for names in lanes]
        all_axes = fig.subplots(len(runs), 1, sharex=True, squeeze=False, height_ratios=shares)[:, 0]
        for (name, bars), names, ax in zip(runs.items(), lanes, all_axes, strict=True):
            waits = waiting(bars, link)
            _draw(ax, bars, names, waits, next(n for n in reversed(names) if n != link), layers, right)
            whole, spare = format_seconds(makespan(bars)), length(waits)
            words = f"{name}: {whole}" + (f", of which the rank waits {format_seconds(spare)}" if spare else "")
            ax.set_title(words, loc="left", size=9.5, pad=3)
            if name in bounds:
                ax.axvline(bounds[name], color=INK, lw=1.3, ls=(0, (4, 2)), zorder=0.5)
        unit = 1e3 if right < 2 else 1
        all_axes[-1].xaxis.set_major_formatter(lambda value, _: f"{value * unit:g}")
        all_axes[-1].set_xlabel("ms" if unit > 1 else "seconds")
        headline_above(fig, title, label)
        legend_below(fig, _legend(layers, bool(bounds)), columns=4)
    return fig


def makespan(bars: Iterable[LaneBar]) -> float:
    """Seconds from 0 to the last end."""
    return max(bar.end for bar in bars)


def waiting(bars: Sequence[LaneBar], link: str = "transfers") -> list[Interval]:
    """The time, from 0 to the last end, in which no lane but the link's is busy."""
    return without([(0.0, makespan(bars))], [(bar.start, bar.end) for bar in bars if bar.lane != link])


def _lanes(bars: Sequence[LaneBar]) -> list[str]:
    """Lanes in the order in which they begin."""
    begins: dict[str, float] = {}
    for bar in bars:
        begins[bar.lane] = min(bar.start, begins.get(bar.lane, bar.start))
    return sorted(begins, key=begins.__getitem__)


def _draw(
    ax: Axes,
    bars: Sequence[LaneBar],
    names: Sequence[str],
    waits: Iterable[Interval],
    waits_in: str,
    layers: int,
    right: float,
) -> None:
    for row in range(len(names)):
        ax.axhspan(row - 0.46, row + 0.46, color=LANE, lw=0, zorder=0)
    for begin, end in waits:
        corner = (begin, names.index(waits_in) - _BAR / 2)
        look: dict[str, Any] = {"fc": "white", "ec": ALARM, "hatch": "////", "lw": 0, "alpha": 0.5}
        ax.add_artist(Rectangle(corner, end - begin, _BAR, gid="waits", **look))
    for row, name in enumerate(names):
        own = sorted((bar for bar in bars if bar.lane == name), key=lambda bar: bar.start)
        for bar in own:
            width, color = bar.end - bar.start, layer_color(bar.layer, layers)
            edge = 0.7 if width > 0.003 * right else 0.0
            ax.add_artist(Rectangle((bar.start, row - _BAR / 2), width, _BAR, fc=color, ec="white", lw=edge))
        for layer, together in itertools.groupby(own, key=lambda bar: bar.layer):  # the parts of a layer: one number
            parts = list(together)
            middle = parts[len(parts) // 2]
            begin, end = (parts[0].start, parts[-1].end) if not _has_room(middle, right) else middle[2:]
            if _has_room(LaneBar(name, layer, begin, end), right):
                ink = ink_on(layer_color(layer, layers))
                ax.text((begin + end) / 2, row, str(layer), ha="center", va="center_baseline", size=8, color=ink)
    ax.set_xlim(0, right)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")


def _has_room(bar: LaneBar, right: float) -> bool:
    return (bar.end - bar.start) / right * _AXES_INCHES > len(str(bar.layer)) * _INCHES_PER_CHARACTER


def layer_color(layer: int, layers: int) -> str:
    """The colour of a layer: the darker, the nearer to the input."""
    share = layer / max(layers - 1, 1)
    first, last = to_rgb(_FIRST), to_rgb(_LAST)
    red, green, blue = (a + (b - a) * share for a, b in zip(first, last, strict=True))
    return to_hex((red, green, blue))


def _legend(layers: int, bound: bool) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [
        Patch(fc=layer_color(0, layers), label="layer 0, at the input"),
        Patch(fc=layer_color(layers - 1, layers), label=f"layer {layers - 1}, the last"),
        Patch(fc="white", ec=ALARM, hatch="////", lw=0.8, label="the rank computes nothing"),
    ]
    if bound:
        handles.append(Line2D([], [], color=INK, lw=1.3, ls=(0, (4, 2)), label="no order takes less"))
    return handles
