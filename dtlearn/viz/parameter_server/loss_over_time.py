"""The same runs twice: loss over updates, and loss over seconds. What wins on the one axis may lose on the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from matplotlib.figure import Figure

from ..style import LINE_LOOKS, MUTED, headline_above, legend_below, new_figure, style


class ShownVersion(Protocol):
    """A version of the parameters: its number, when the server had it, and its loss."""

    @property
    def version(self) -> int: ...

    @property
    def seconds(self) -> float: ...

    @property
    def value(self) -> float: ...


def loss_over_time(
    runs: Mapping[str, Sequence[ShownVersion]],
    samples: Mapping[str, int] | None = None,
    target: float | None = None,
    title: str = "One race, two clocks",
    label: str = "",
) -> Figure:
    """Draw the loss over updates, or over the samples that they used, and over seconds.

    Args:
        runs: by name: the versions, such as `SimulatedRun.versions`.
        samples: by name: samples of one update; a synchronous one has those of all workers. With them equal places of
            the left axis have seen as much data. None: the left axis counts updates.
        target: a loss; where each run first reaches it is marked. None: none.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no run, more than five, or other runs in `samples`.
    """
    factors = dict.fromkeys(runs, 1) if samples is None else samples
    if not 1 <= len(runs) <= len(LINE_LOOKS) or set(runs) != set(factors):
        raise ValueError(f"1 to {len(LINE_LOOKS)} runs are needed, with samples; got {list(runs)} and {list(factors)}")
    with style():
        fig = new_figure(height=3.9)
        left, right = fig.subplots(1, 2, sharey=True, gridspec_kw={"wspace": 0.06})
        for (name, versions), (color, dashes, marker) in zip(runs.items(), LINE_LOOKS, strict=False):
            values = [v.value for v in versions]
            reached = next((v for v in versions if target is not None and v.value <= target), None)
            words = f"{name}: {reached.seconds:.3g} s to {target:g}" if reached else name
            for ax, places in (
                (left, [v.version * factors[name] for v in versions]),
                (right, [v.seconds for v in versions]),
            ):
                ax.plot(places, values, color=color, ls=dashes, lw=1.8, label=words if ax is left else None)
                if reached:
                    at = places[list(versions).index(reached)]
                    ax.plot([at], [reached.value], color=color, marker=marker, ms=7, mec="white", ls="")
        for ax, words in ((left, "updates" if samples is None else "samples in these updates"), (right, "seconds")):
            ax.set_xlabel(words)
            ax.set_xlim(left=0)
            ax.set_yscale("log")
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            ax.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:.0e}"[0] in "25" else "")
            ax.grid(axis="both")
            if target is not None:
                ax.axhline(target, color=MUTED, lw=1, zorder=0)
        left.set_ylabel("loss")
        headline_above(fig, title, label)
        legend_below(fig, left.get_legend_handles_labels()[0], columns=3)
    return fig
