"""What a rank computes and what is under way, layer by layer, under one order of sends above the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from dtlearn.runtime.record.intervals import Interval, length, union, without

from ..style import ALARM, INK, LANE, WIDTH, headline_above, legend_below, new_figure, style
from ..units import format_seconds

if TYPE_CHECKING:
    from dtlearn.communication_scheduling.simulate import LaneSpan

_BAR = 0.78  # of a lane's height
_FIRST, _LAST = "#08306b", "#cfe1f2"  # of the first layer and of the last; between them in steps, also in grey
_AXES_INCHES = WIDTH * 0.86
_INCHES_PER_CHARACTER = 0.08
_SEEN = 0.0005  # of the width: what is narrower than that is no wait that one could see


def communication_lanes(
    runs: Mapping[str, Sequence[LaneSpan]],
    link: str = "transfers",
    bound: float | None = None,
    title: str = "Backward, transfers and the next forward pass",
    label: str = "",
) -> Figure:
    """Draw a panel for each run on one time axis: a lane for each kind of work, and in it the layers' numbers.

    Lanes stand in the order in which they begin. The darker a bar, the nearer to the input is its layer, and the sooner
    is it needed. Hatched is the time in which the rank computes nothing; its sum stands above, with the makespan.

    Args:
        runs: the spans of each, by name, from second 0 on: `ScheduledStep.spans`, simulated or recorded.
        link: the lane that is no computation.
        bound: seconds that no order can go below, a dashed line; None: no line.
        title: what the figure is about.
        label: where the times come from, printed under the title; if it says "emulated link" or "emulated layer times",
            a box in the figure does too.

    Raises:
        ValueError: no run, or one without a span.
    """
    if not runs or not all(runs.values()):
        counts = {name: len(spans) for name, spans in runs.items()}
        raise ValueError(f"runs with spans are needed, at least one of each; got {counts}")
    right = 1.01 * max([bound or 0.0, *(span.end for spans in runs.values() for span in spans)])
    num_layers = 1 + max(span.layer for spans in runs.values() for span in spans)
    lanes = [_lanes(spans) for spans in runs.values()]
    with style():
        fig = new_figure(height=1.45 + sum(0.38 * len(names) + 0.4 for names in lanes))
        shares = [len(names) + 0.3 for names in lanes]
        all_axes = fig.subplots(len(runs), 1, sharex=True, squeeze=False, height_ratios=shares)[:, 0]
        for (name, spans), names, ax in zip(runs.items(), lanes, all_axes, strict=True):
            waits = waiting(spans, link)
            _draw_lanes(ax, spans, names, num_layers, right)
            _draw_waits(ax, waits, next(row for row in reversed(range(len(names))) if names[row] != link), right)
            whole, spare = format_seconds(_end(spans)), length(waits)
            words = f"{name}: {whole}" + (f", of which the rank waits {format_seconds(spare)}" if spare else "")
            ax.set_title(words, loc="left", size=9.5, pad=3)
            if bound is not None:
                ax.axvline(bound, color=INK, lw=1.3, ls=(0, (4, 2)), zorder=0.5)
        unit, words = (1e3, "ms") if right < 2 else (1.0, "seconds")
        all_axes[-1].xaxis.set_major_formatter(lambda value, _: f"{value * unit:g}")
        all_axes[-1].set_xlabel(words)
        headline_above(fig, title, label)
        if emulated := [words for words in ("emulated link", "emulated layer times") if words in label.lower()]:
            box = {"boxstyle": "round,pad=0.3", "facecolor": "#fff4d6", "edgecolor": "#8a6d00"}
            words = ", ".join(emulated)
            fig.text(0.985, 0.985, words, ha="right", va="top", size=9, bbox=box).set_in_layout(False)
        legend_below(fig, _legend(num_layers, bound is not None), columns=4)
    return fig


def waiting(spans: Sequence[LaneSpan], link: str = "transfers") -> list[Interval]:
    """The time, from 0 to the last end, in which no lane but the link's is busy."""
    return without([(0.0, _end(spans))], [(span.start, span.end) for span in spans if span.lane != link])


def _end(spans: Iterable[LaneSpan]) -> float:
    return max(span.end for span in spans)


def _lanes(spans: Sequence[LaneSpan]) -> list[str]:
    begins: dict[str, float] = {}
    for span in spans:
        begins[span.lane] = min(span.start, begins.get(span.lane, span.start))
    return sorted(begins, key=begins.__getitem__)


def _draw_lanes(ax: Axes, spans: Sequence[LaneSpan], names: Sequence[str], num_layers: int, right: float) -> None:
    for row, name in enumerate(names):
        ax.axhspan(row - 0.46, row + 0.46, color=LANE, lw=0, zorder=0)
        own = sorted((span for span in spans if span.lane == name), key=lambda span: span.start)
        for span in own:
            width, color = span.end - span.start, layer_color(span.layer, num_layers)
            edge = 0.7 if width > 0.003 * right else 0.0
            ax.add_artist(Rectangle((span.start, row - _BAR / 2), width, _BAR, fc=color, ec="white", lw=edge))
        for layer, together in itertools.groupby(own, key=lambda span: span.layer):
            partitions = [(span.start, span.end) for span in together]
            needed = len(str(layer)) * _INCHES_PER_CHARACTER / _AXES_INCHES * right
            # A number in each; where all are too narrow, one for all of them.
            wide = [(begin, end) for begin, end in partitions if end - begin > needed]
            for begin, end in wide or [(partitions[0][0], partitions[-1][1])]:
                if end - begin > needed:
                    at, ink = ((begin + end) / 2, row), _ink_on(layer_color(layer, num_layers))
                    ax.text(*at, str(layer), ha="center", va="center_baseline", size=8, color=ink)
    ax.set_xlim(0, right)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_yticks(
        range(len(names)), ["next forward" if name == "forward" and "backward" in names else name for name in names]
    )
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")


def _draw_waits(ax: Axes, waits: Iterable[Interval], row: int, right: float) -> None:
    """Hatch the times in which the next thing to compute is held up, in the last lane of computation."""
    look: dict[str, Any] = {"fc": "white", "ec": ALARM, "hatch": "////", "lw": 0, "alpha": 0.5}
    for begin, end in union((wait for wait in waits if wait[1] - wait[0] > _SEEN * right), gap=_SEEN * right):
        ax.add_artist(Rectangle((begin, row - _BAR / 2), end - begin, _BAR, gid="waits", zorder=0.8, **look))


def layer_color(layer: int, num_layers: int) -> str:
    """The colour of a layer: the darker, the nearer to the input."""
    share = layer / max(num_layers - 1, 1)
    first, last = to_rgb(_FIRST), to_rgb(_LAST)
    red, green, blue = (a + (b - a) * share for a, b in zip(first, last, strict=True))
    return to_hex((red, green, blue))


def _ink_on(color: str) -> str:
    """White on the darker half of these blues: there it has the higher contrast."""
    red, green, blue = to_rgb(color)
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else INK


def _legend(num_layers: int, has_bound: bool) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [
        Patch(fc=layer_color(0, num_layers), label="layer 0, at the input"),
        Patch(fc=layer_color(num_layers - 1, num_layers), label=f"layer {num_layers - 1}, the last"),
        Patch(fc="white", ec=ALARM, hatch="////", lw=0.8, label="the rank computes nothing"),
    ]
    if has_bound:
        handles.append(Line2D([], [], color=INK, lw=1.3, ls=(0, (4, 2)), label="no order takes less"))
    return handles
