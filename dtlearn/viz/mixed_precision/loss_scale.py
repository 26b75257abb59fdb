"""The loss scale over the steps of a run, and the steps that were skipped."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..style import ALARM, headline, legend_below, new_figure, style


def loss_scale(
    scales: Sequence[float], skipped: Collection[int], title: str = "The loss scale of a run", label: str = ""
) -> Figure:
    """Draw the scale of each step as stairs, in powers of two, with a cross on each skipped step.

    Args:
        scales: of each step, before its update; above 0.
        skipped: numbers of the steps that moved no weight.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no steps, a scale that is not above 0, or a skipped step that is none of them.
    """
    if not scales or min(scales) <= 0 or not set(skipped) <= set(range(len(scales))):
        raise ValueError(f"scales above 0 are needed, and skipped steps among them; got {len(scales)} and {skipped}")
    with style():
        fig = new_figure(height=3.4)
        ax = fig.add_subplot()
        steps, exponents = range(len(scales) + 1), [math.log2(scale) for scale in scales]
        ax.step(steps, [*exponents, exponents[-1]], where="post", color="#0072B2", lw=2, label="loss scale")
        at = sorted(skipped)
        if at:
            many = f"skipped: {len(at)} of {len(scales)} steps"
            middle, height = [step + 0.5 for step in at], [exponents[step] for step in at]
            ax.plot(middle, height, "X", color=ALARM, ms=9, mec="white", label=many, zorder=3)
        low, high = math.floor(min(exponents)) - 1, math.ceil(max(exponents)) + 1
        ax.set_ylim(low, high)
        ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.yaxis.set_major_formatter(lambda value, _: f"$2^{{{value:.0f}}}$")
        ax.set_xlim(0, len(scales))
        ax.set(xlabel="step", ylabel="loss scale S")
        ax.grid(axis="y")
        headline(ax, title, label)
        legend_below(fig, ax.get_legend_handles_labels()[0])
    return fig
