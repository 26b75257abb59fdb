"""Seconds of a step's communication over the link's speed, with and without a codec: where the lines cross."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from ..style import GRID, INK, MUTED, headline, legend_below, new_figure, style
from ..units import format_seconds
from .looks import METHOD_LOOKS, require_methods

if TYPE_CHECKING:
    from dtlearn.gradient_compression.break_even import CommTime

_BITS = 8
_LINKS = {"InfiniBand HDR": 25e9, "NVLink (A100)": 300e9}  # as `Link.named`: those that are no round figures


def break_even_curves(
    plain: CommTime,
    coded: Mapping[str, CommTime],
    speeds: tuple[float, float] = (1.25e6, 125e9),
    title: str = "When does it pay?",
    label: str = "",
) -> Figure:
    """Draw a line for each codec and a thick one without; where they cross stands a mark, and the legend says it.

    Args:
        plain: communication of a step without a codec.
        coded: of each codec, its own computation included.
        speeds: smallest and largest bytes per second of the link.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no codec, too many, or speeds that are not in order.
    """
    from dtlearn.gradient_compression.break_even import break_even

    names = require_methods(("without", *coded))
    low, high = speeds
    if len(names) < 2 or not 0 < low < high:
        raise ValueError(f"a codec, and a lower and a higher speed are needed; got {list(coded)}, {speeds}")
    grid = np.geomspace(low, high, 200).tolist()
    with style():
        fig = new_figure(height=4.6)
        ax = fig.add_subplot()
        ax.plot(grid, [plain.seconds(b) for b in grid], color=INK, lw=5, alpha=0.28)
        handles = [Line2D([], [], color=INK, lw=5, alpha=0.28, label="without a codec")]
        for (name, line), (color, dashes, marker) in zip(coded.items(), METHOD_LOOKS[1:], strict=False):
            found = break_even(plain, line)
            ax.plot(grid, [line.seconds(b) for b in grid], color=color, ls=dashes, lw=1.8)
            if found.bandwidth is not None and low <= found.bandwidth <= high:
                ax.plot(found.bandwidth, plain.seconds(found.bandwidth), marker, color=color, ms=9, mec=INK, zorder=4)
            handles.append(Line2D([], [], color=color, ls=dashes, marker=marker, mec=INK, label=f"{name}: {found}"))
        for name, speed in _LINKS.items():
            if low <= speed <= high:
                ax.axvline(speed, color=MUTED, lw=0.9, ls=(0, (2, 2)), zorder=0)
                ax.annotate(
                    name,
                    (speed, 1),
                    (3, -10),
                    xycoords=("data", "axes fraction"),
                    textcoords="offset points",
                    size=8.5,
                    color=MUTED,
                )
        ax.set(
            xscale="log",
            yscale="log",
            xlim=(low, high),
            xlabel="speed of the link, each way",
            ylabel="communication of a step",
        )
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _speed(value)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_seconds(value)))
        ax.set_xticks([10**k / _BITS for k in range(6, 13) if low <= 10**k / _BITS <= high])
        ax.minorticks_off()
        ax.grid(color=GRID)
        headline(ax, title, label)
        legend_below(fig, handles, columns=2)
    return fig


def break_even_words(plain: CommTime, coded: Mapping[str, CommTime]) -> str:
    """What the figure says, in a sentence, for alt texts."""
    from dtlearn.gradient_compression.break_even import break_even

    return "; ".join(f"{name} {break_even(plain, line)}" for name, line in coded.items())


def _speed(bandwidth: float) -> str:
    bits = _BITS * bandwidth
    unit, size = next((unit, size) for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("", 1.0)) if bits >= size)
    return f"{bits / size:g} {unit}b/s"
