"""How stale gradients were: a histogram for each run, from the servers' logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from ..style import ALARM, INK, headline_above, new_figure, style

if TYPE_CHECKING:
    from dtlearn.parameter_server.progress import LogEntry

_COLOR = "#0072B2"


def staleness_histogram(
    logs: Mapping[str, Sequence[LogEntry]],
    title: str = "How many updates a gradient missed",
    label: str = "",
) -> Figure:
    """Draw a panel for each run: the share of the pushes with each staleness, and the mean. Dropped ones do not count.

    Args:
        logs: by run, of one server each.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no run, or one that applied no push.
    """
    values = {name: [e.staleness for e in log if e.applied is not None] for name, log in logs.items()}
    if not values or not all(values.values()):
        raise ValueError(
            f"runs with pushes are needed; got { ({name: len(of_run) for name, of_run in values.items()}) }"
        )
    largest = max(max(of_run) for of_run in values.values())
    with style():
        fig = new_figure(height=2.9)
        all_axes = fig.subplots(1, len(values), sharex=True, sharey=True, squeeze=False)[0]
        for (name, of_run), ax in zip(values.items(), all_axes, strict=True):
            counts, mean = Counter(of_run), sum(of_run) / len(of_run)
            shares = [counts[value] / len(of_run) for value in range(largest + 1)]
            ax.bar(range(largest + 1), shares, 0.8, color=_COLOR)
            ax.axvline(mean, color=ALARM, lw=1.6, ls=(0, (4, 2)))
            ax.text(
                mean + 0.02 * (largest + 1),
                1.04,
                f"mean {mean:.1f}",
                color=ALARM,
                size=9,
                va="top",
                transform=ax.get_xaxis_transform(),
            )
            ax.set_title(name, loc="left", size=10, color=INK, pad=12)
            ax.set_xlabel("staleness in updates")
            ax.set_xlim(-0.6, largest + 0.6)
            if largest < 12:
                ax.set_xticks(range(largest + 1))
            ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
            ax.grid(axis="y")
        all_axes[0].set_ylabel("share of pushes")
        headline_above(fig, title, label)
    return fig
