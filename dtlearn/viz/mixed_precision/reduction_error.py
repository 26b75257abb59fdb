"""The error of a sum in 16 bits over the number of ranks, by algorithm: measured on ranks, and simulated."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from ..style import LINE_LOOKS, headline, legend_below, new_figure, style

Errors = Mapping[str, Mapping[int, float]]


def reduction_error(
    simulated: Errors, measured: Errors, title: str = "What a 16-bit all-reduce loses", label: str = ""
) -> Figure:
    """Draw relative errors over N, both logarithmic: lines are simulated, points measured on real ranks.

    Args:
        simulated: {algorithm: {N: relative error}}.
        measured: the same, of any of these algorithms; may be empty.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: nothing to draw, too many algorithms, one that was only measured, or an error that is not above 0.
    """
    errors = [error for each in (*simulated.values(), *measured.values()) for error in each.values()]
    if not 1 <= len(simulated) <= len(LINE_LOOKS) or set(measured) - set(simulated) or min(errors, default=0) <= 0:
        raise ValueError(
            f"1 to {len(LINE_LOOKS)} simulated algorithms are needed, and errors above 0; got {list(simulated)}, "
            f"measured {list(measured)}"
        )
    ranks = sorted({n for each in simulated.values() for n in each})
    with style():
        fig = new_figure(height=4.2)
        ax = fig.add_subplot()
        sizes = (14, 11, 7, 5, 3)  # of points: each is seen around a later one that lies on it
        for (name, by_ranks), (color, dashes, marker), size in zip(simulated.items(), LINE_LOOKS, sizes, strict=False):
            points = sorted(by_ranks.items())
            ax.plot(*zip(*points, strict=True), color=color, ls=dashes, lw=1.8, label=f"{name}, simulated")
            if seen := sorted(measured.get(name, {}).items()):
                xs, ys = zip(*seen, strict=True)
                ax.plot(
                    xs, ys, marker, color=color, mec="white", ms=size, ls="none", label=f"{name}, measured", zorder=3
                )
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xticks(ranks, [f"{n:,}" for n in ranks])
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.minorticks_off()
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        ax.set(xlabel="number of ranks N", ylabel="error, relative to the exact sum")
        ax.grid()
        headline(ax, title, label)
        legend_below(fig, ax.get_legend_handles_labels()[0], columns=4)
    return fig
