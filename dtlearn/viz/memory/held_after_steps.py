"""Bytes that are still held after each training step: level if nothing leaks, a rising line if something does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..style import LINE_LOOKS, headline, legend_below, new_figure, style
from .categories import MB


def growth(held: Sequence[float]) -> float:
    """Bytes by which each step adds to what is held: the mean from the second step on, as the first one makes state."""
    return (held[-1] - held[1]) / (len(held) - 2)


def held_after_steps(
    held: Mapping[str, Sequence[float]], title: str = "What is held after each step", label: str = ""
) -> Figure:
    """Draw bytes over steps, a line per loop, with the growth per step in the legend.

    Args:
        held: bytes after each step, by the loop's name.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no loop, more than five, fewer than three steps, or bytes below 0.
    """
    fewest = min(map(len, held.values()), default=0)
    if not 1 <= len(held) <= len(LINE_LOOKS) or fewest < 3 or min(map(min, held.values())) < 0:
        raise ValueError(
            f"1 to {len(LINE_LOOKS)} loops are needed, each with bytes of 3 steps or more; got {list(held)}"
        )
    with style():
        fig = new_figure(height=3.6)
        ax = fig.add_subplot()
        for (name, line), (color, dashes, marker) in zip(held.items(), LINE_LOOKS, strict=False):
            more = growth(line)
            words = f"{name}: {more / MB:+.2f} MB a step" if abs(more) >= MB / 200 else f"{name}: level"
            ax.plot(
                range(1, len(line) + 1),
                [n / MB for n in line],
                marker,
                color=color,
                ls=dashes,
                ms=5,
                lw=1.8,
                label=words,
            )
        ax.set_ylim(0, 1.1 * max(map(max, held.values())) / MB or 1)
        ax.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        ax.set(xlabel="step", ylabel="held after the step (MB = 10⁶ bytes)")
        ax.grid(axis="y")
        headline(ax, title, label)
        legend_below(fig, ax.get_legend_handles_labels()[0], columns=3)
    return fig
