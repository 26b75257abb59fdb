"""A weight of 16 bits under many small updates: one that stalls, and those that do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ..style import LINE_LOOKS, MUTED, headline, legend_below, new_figure, style


def small_updates(
    weights: Mapping[str, Sequence[float]],
    update: float,
    title: str = "A weight that small updates do not move",
    label: str = "",
) -> Figure:
    """Draw the value of a weight over the steps, kept in several ways, beside the exact sum.

    Args:
        weights: by name of the way: the value at the start and after each step.
        update: what is added in each step.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no way, more than five, or ways of different lengths or starts.
    """
    if not 1 <= len(weights) <= len(LINE_LOOKS) or len({(len(w), w[0]) for w in weights.values() if w}) != 1:
        raise ValueError(f"1 to {len(LINE_LOOKS)} ways are needed, of one length and one start; got {len(weights)}")
    values = next(iter(weights.values()))
    last = len(values) - 1
    with style():
        fig = new_figure(height=3.8)
        ax = fig.add_subplot()
        ax.plot([0, last], [values[0], values[0] + last * update], color=MUTED, lw=5, alpha=0.35, label="exact sum")
        for (name, way), (color, dashes, _) in zip(weights.items(), LINE_LOOKS, strict=False):
            ax.plot(range(last + 1), way, color=color, ls=dashes, lw=1.8, label=f"{name}: ends at {way[-1]:.4g}")
        ax.set_xlim(0, last)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        ax.set(xlabel="updates", ylabel="weight")
        ax.grid(axis="y")
        headline(ax, title, label)
        legend_below(fig, ax.get_legend_handles_labels()[0], columns=3)
    return fig
