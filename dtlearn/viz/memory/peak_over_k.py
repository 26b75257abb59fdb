"""The peak of a step over the layers of a recomputed segment: lines by formula, points from runs, the lowest marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..style import INK, LINE_LOOKS, headline, legend_below, new_figure, style
from .categories import MB

_RING: dict[str, Any] = {"marker": "o", "ms": 15, "mfc": "none", "mec": INK, "mew": 1.2, "ls": "none"}
Peaks = Mapping[str, Mapping[int, float]]


def peak_over_k(formula: Peaks, measured: Peaks, title: str = "The peak over k", label: str = "") -> Figure:
    """Draw the bytes at the peak over k; where it is lowest has a ring, and stands in the legend.

    Args:
        formula: {model: {k: bytes}}.
        measured: the same, of any of these models; may be empty.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no model, more than five, one that was only measured, a k below 1 or bytes that are not above 0.
    """
    points = [(k, nbytes) for each in (*formula.values(), *measured.values()) for k, nbytes in each.items()]
    fit = 1 <= len(formula) <= len(LINE_LOOKS) and not set(measured) - set(formula) and all(formula.values())
    if not fit or min(min(point) for point in points) <= 0:
        raise ValueError(
            f"1 to {len(LINE_LOOKS)} models are needed, with k and bytes above 0; got {list(formula)}, measured "
            f"{list(measured)}"
        )
    with style():
        fig = new_figure(height=4.0)
        ax = fig.add_subplot()
        for (name, by_k), (color, dashes, marker) in zip(formula.items(), LINE_LOOKS, strict=False):
            best = [k for k in sorted(by_k) if by_k[k] == min(by_k.values())]
            words = f"k = {best[0]}" if len(best) == 1 else f"k = {best[0]} to {best[-1]}"
            xs, ys = zip(*((k, n / MB) for k, n in sorted(by_k.items())), strict=True)
            ax.plot(xs, ys, color=color, ls=dashes, lw=1.6, label=f"{name}: lowest at {words}")
            ax.plot(best, [by_k[k] / MB for k in best], **_RING, zorder=3)
            if seen := sorted(measured.get(name, {}).items()):
                xs, ys = zip(*((k, n / MB) for k, n in seen), strict=True)
                ax.plot(xs, ys, marker, color=color, mec="white", ms=7, ls="none", label=f"{name}, measured", zorder=4)
        ax.plot([], [], label="ring: a k with the lowest peak", **_RING)
        ax.set_ylim(0, 1.1 * max(nbytes for _, nbytes in points) / MB)
        ax.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        ax.set(xlabel="k, layers of a segment", ylabel="activations at the peak (MB)")
        ax.grid()
        headline(ax, title, label)
        legend_below(fig, ax.get_legend_handles_labels()[0], columns=2)
    return fig
