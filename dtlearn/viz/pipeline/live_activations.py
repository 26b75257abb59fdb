"""Live activations of each rank: what was measured beside what theory says, for several schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..style import INK, headline, legend_below, new_figure, style

_LOOKS = (("#0072B2", ""), ("#E69F00", "///"), ("#009E73", "..."), ("#CC79A7", "\\\\\\"), ("#56B4E9", "xxx"))
_GROUP = 0.8  # of the distance between two ranks


def live_activations(
    measured: Mapping[str, Sequence[float]],
    theory: Mapping[str, Sequence[float]],
    title: str = "Live activations of each rank",
    label: str = "",
    unit: str = "activations of micro-batches held at most",
) -> Figure:
    """Draw a bar for each schedule and rank, its number on top, and a black line where theory expects its end.

    Args:
        measured: for each schedule, the most that each rank held at once.
        theory: the same by formula, for the same schedules.
        title: what the figure shows.
        label: where the numbers come from, printed under the title.
        unit: of both.

    Raises:
        ValueError: no schedule, more than five, other schedules in theory, or other numbers of ranks.
    """
    sizes = {len(numbers) for each in (measured, theory) for numbers in each.values()}
    if not 1 <= len(measured) <= len(_LOOKS) or list(measured) != list(theory) or len(sizes) != 1 or not min(sizes):
        raise ValueError(
            f"1 to {len(_LOOKS)} schedules on the same ranks are needed, measured and by theory; got {list(measured)} "
            f"and {list(theory)}, with {sorted(sizes)} ranks"
        )
    (num_ranks,) = sizes
    width = _GROUP / len(measured)
    with style():
        fig = new_figure(height=3.7)
        ax = fig.add_subplot()
        for place, ((name, numbers), (color, hatch)) in enumerate(zip(measured.items(), _LOOKS, strict=False)):
            middles = [rank - _GROUP / 2 + (place + 0.5) * width for rank in range(num_ranks)]
            ax.bar(middles, numbers, 0.9 * width, color=color, hatch=hatch, ec="white", lw=0, label=f"{name}, measured")
            for middle, number, expected in zip(middles, numbers, theory[name], strict=True):
                ends = [middle - 0.48 * width, middle + 0.48 * width]
                ax.plot(ends, [expected] * 2, color=INK, lw=2.2, solid_capstyle="butt", gid="theory")
                ax.annotate(
                    f"{number:.4g}",
                    (middle, max(number, expected)),
                    (0, 3),
                    textcoords="offset points",
                    ha="center",
                    size=9,
                )
        ax.set_xticks(range(num_ranks), [f"rank {rank}" for rank in range(num_ranks)])
        ax.tick_params(axis="x", length=0)
        ax.set_ylabel(unit)
        ax.set_ylim(0, 1.14 * max(max(numbers) for each in (measured, theory) for numbers in each.values()) or 1)
        ax.grid(axis="y")
        headline(ax, title, label)
        handles, _ = ax.get_legend_handles_labels()
        legend_below(fig, [*handles, Line2D([], [], color=INK, lw=2.2, label="theory")])
    return fig
