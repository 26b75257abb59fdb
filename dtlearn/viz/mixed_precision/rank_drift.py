"""Ranks that decide about an overflow each for itself: their loss scales, and how far their weights drift apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..style import ALARM, LINE_LOOKS, RANK_COLORS, headline, legend_below, new_figure, style

_RUNS = (LINE_LOOKS[4], LINE_LOOKS[2], LINE_LOOKS[3], LINE_LOOKS[1])  # first those unlike the colours of ranks
_DASHES = ("-", (0, (4, 2)), (0, (1, 1)), (0, (4, 1, 1, 1)))


def rank_drift(
    scales: Sequence[Sequence[float]],
    skipped: Sequence[Sequence[bool]],
    differences: Mapping[str, Sequence[float]],
    title: str = "One rank skips a step, the other takes it",
    label: str = "",
) -> Figure:
    """Draw the loss scale of each rank on the left; on the right, by run, how far the ranks' weights are apart.

    Args:
        scales: of each rank, after each step; above 0.
        skipped: of each rank, whether it skipped each step.
        differences: of each run, such as "each rank by itself": the largest difference after each step.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no ranks or no runs, more than four ranks or runs, or runs of different lengths.
    """
    lengths = {len(each) for each in (*scales, *skipped, *differences.values())}
    if not 1 <= len(scales) <= len(_DASHES) or not 1 <= len(differences) <= 4 or len(lengths) != 1:
        raise ValueError(
            f"rank_drift draws 1 to 4 ranks and runs of one length; got {len(scales)} ranks, {len(differences)} runs, "
            f"lengths {sorted(lengths)}"
        )
    with style():
        fig = new_figure(height=3.6)
        left, right = fig.subplots(1, 2)
        _scales(left, scales, skipped)
        for (name, values), (color, dashes, marker) in zip(differences.items(), _RUNS, strict=False):
            right.plot(range(1, len(values) + 1), values, color=color, ls=dashes, marker=marker, ms=4, label=name)
        right.set(xlabel="step", ylabel="largest difference of a weight")
        for ax in (left, right):
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            ax.grid(axis="y")
        headline(left, title, label)
        right.annotate(
            "how far copies of one weight are apart",
            (1, 1),
            (0, 8),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            size=9,
        )
        legend_below(fig, [*left.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]], columns=3)
    return fig


def _scales(ax: Axes, scales: Sequence[Sequence[float]], skipped: Sequence[Sequence[bool]]) -> None:
    marked = False
    for rank, (values, skips) in enumerate(zip(scales, skipped, strict=True)):
        heights = [math.log2(value) for value in values]
        steps = range(1, len(values) + 1)
        ax.plot(steps, heights, color=RANK_COLORS[rank], ls=_DASHES[rank], lw=2, marker="o", ms=4, label=f"rank {rank}")
        for step, height, skip in zip(steps, heights, skips, strict=True):
            if skip:
                words = None if marked else "skipped step"
                ax.plot(step, height, "X", color=ALARM, ms=10, mec="white", zorder=3, ls="none", label=words)
                marked = True
    ax.margins(y=0.2)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.yaxis.set_major_formatter(lambda value, _: f"{2**value:g}")
    ax.set(xlabel="step", ylabel="loss scale after the step")
