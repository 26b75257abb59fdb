"""Gradients of each layer in powers of two, before and after scaling, against the range of a format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..style import ALARM, INK, MUTED, headline, legend_below, new_figure, style

if TYPE_CHECKING:
    from dtlearn.mixed_precision.formats import Format
    from dtlearn.mixed_precision.measure.gradients import Histogram

# What becomes of a number: colour and hatch.
_FATES = {
    "becomes 0": (ALARM, "xxx"),
    "subnormal: fewer bits": ("#E69F00", "///"),
    "normal": ("#0072B2", ""),
    "overflows": ("#222222", "++"),
}
_LIMITS = (0, (2, 2))  # dashes
_LARGEST, _LEAST = 0.86, 0.004  # a row's height; a bar that would be lower is not drawn


def fate(exponent: int, fmt: Format) -> str:
    """Return what a format makes of the numbers in [2^e, 2^(e+1)): a key of the legend."""
    if 2.0 ** (exponent + 1) <= fmt.smallest_subnormal / 2:
        return "becomes 0"
    if exponent < fmt.smallest_exponent:
        return "subnormal: fewer bits"
    return "normal" if exponent <= fmt.largest_exponent else "overflows"


def share_of(histogram: Histogram, fmt: Format, what: str = "becomes 0") -> float:
    """The share of the numbers that are not 0 and have this fate; 0 if there are none."""
    total = sum(histogram.counts)
    counts = zip(histogram.exponents, histogram.counts, strict=True)
    return sum(count for e, count in counts if fate(e, fmt) == what) / total if total else 0.0


def gradient_histograms(
    layers: Mapping[str, Histogram],
    fmt: Format,
    scales: Sequence[int] = (0, 16),
    ranges: Sequence[Format] = (),
    title: str = "Gradients of each layer",
    label: str = "",
) -> Figure:
    """Draw a row of bars per layer and a column per loss scale; the share that becomes 0 stands in each row.

    Args:
        layers: a histogram of each layer, the first on top.
        fmt: the format that decides what is lost.
        scales: exponents of the loss scales: 16 for 65,536.
        ranges: formats whose range is drawn under the rows: subnormal numbers hatched, and arrows where it goes on.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no layer or no scale, or a layer without numbers.
    """
    if not layers or not scales or not all(histogram.counts for histogram in layers.values()):
        raise ValueError("gradient_histograms needs a layer and a scale or more, and a number that is not 0 in each")
    drawn = [e for histogram in layers.values() for e, _ in _visible(histogram)]
    low, high = min(drawn) + min(scales) - 10, max(max(drawn) + max(scales), fmt.largest_exponent) + 2  # room for words
    heights = [len(layers), max(0.6, 0.8 * len(ranges))] if ranges else [len(layers)]
    with style():
        fig = new_figure(height=1.4 + 0.42 * sum(heights))
        axes = fig.subplots(len(heights), len(scales), sharex=True, height_ratios=heights, squeeze=False)
        for column, scale in enumerate(scales):
            _panel(axes[0][column], layers, fmt, scale, (low, high), names=column == 0)
            if len(scales) > 1:
                words = "not scaled" if scale == 0 else f"loss times 2^{scale} = {2**scale:,}"
                place = {"xycoords": "axes fraction", "textcoords": "offset points"}
                axes[0][column].annotate(words, (1, 1), (0, 8), ha="right", size=9, **place)
            if ranges:
                _ranges(axes[1][column], ranges, (low, high), names=column == 0)
            axes[-1][column].set_xlabel("absolute value")
            axes[-1][column].xaxis.set_major_formatter(lambda value, _: f"$2^{{{value:.0f}}}$")
        headline(axes[0][0], title, label)
        fates = ["becomes 0", "subnormal: fewer bits", "normal"]
        patches = [
            Patch(fc=_FATES[f][0], ec="white", hatch=_FATES[f][1], lw=0, label=f"{f} in {fmt.name}") for f in fates
        ]
        limits = Line2D([], [], color=MUTED, lw=0.9, ls=_LIMITS, label=f"the limits between these, in {fmt.name}")
        legend_below(fig, [*patches, limits])
    return fig


def _visible(histogram: Histogram) -> list[tuple[int, float]]:
    """Exponents and counts, relative to the largest count, without those that would be no bar."""
    most = max(histogram.counts)
    parts = ((e, count / most) for e, count in zip(histogram.exponents, histogram.counts, strict=True))
    return [(e, part) for e, part in parts if part > _LEAST]


def _panel(
    ax: Axes, layers: Mapping[str, Histogram], fmt: Format, scale: int, span: tuple[int, int], names: bool
) -> None:
    for row, histogram in enumerate(layers.values()):
        shifted = histogram.shifted(scale)
        for e, part in _visible(shifted):
            color, hatch = _FATES[fate(e, fmt)]
            ax.bar(e, -_LARGEST * part, 1, row + 0.45, align="edge", color=color, hatch=hatch, ec="white", lw=0.3)
        share = share_of(shifted, fmt)
        words = f"{100 * share:.0f} % lost" if share >= 0.005 else f"{100 * share:.1f} % lost"
        ax.text(span[0] + 0.5, row + 0.1, words, size=9, color=ALARM if share >= 0.005 else INK)
    for at in (math.log2(fmt.smallest_subnormal) - 1, fmt.smallest_exponent):
        ax.axvline(at, color=MUTED, lw=0.9, ls=_LIMITS, zorder=0)
    ax.set_xlim(*span)
    ax.set_ylim(len(layers) - 0.5, -0.5)
    ax.set_yticks(range(len(layers)), list(layers) if names else [""] * len(layers))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _ranges(ax: Axes, formats: Sequence[Format], span: tuple[int, int], names: bool) -> None:
    for row, fmt in enumerate(formats):
        subnormal, normal = math.log2(fmt.smallest_subnormal), fmt.smallest_exponent
        largest = fmt.largest_exponent + 1
        for start, end, hatch in ((subnormal, normal, "///"), (normal, largest, "")):
            start, end = max(start, span[0]), min(end, span[1])
            if start < end:
                ax.barh(row, end - start, 0.6, start, color="#cfe3f1", hatch=hatch, ec=MUTED, lw=0.5)
        for beyond, at, arrow in ((subnormal < span[0], span[0], "<"), (largest > span[1], span[1], ">")):
            if beyond:
                ax.plot(at, row, arrow, color=INK, ms=7, clip_on=False)
    ax.set_ylim(len(formats) - 0.5, -0.5)
    ax.set_yticks(range(len(formats)), [f"range of {fmt.name}" for fmt in formats] if names else [""] * len(formats))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
