"""What error feedback does to one coordinate: what it was given, what was sent of it, and what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from matplotlib.figure import Figure

from ..style import GRID, LINE_LOOKS, headline, legend_below, new_figure, style

_GIVEN, _WITH, _WITHOUT = "sum of its gradients", "sum of what was sent, with error feedback", "without"


def coordinate_over_steps(
    gradients: Sequence[float],
    with_feedback: Sequence[float],
    without: Sequence[float],
    title: str = "One coordinate, with and without error feedback",
    label: str = "",
) -> Figure:
    """Draw sums over the steps above, and what is still kept below: the sum of gradients less the sum of what was sent.

    Args:
        gradients: of one coordinate on one rank, in each step.
        with_feedback: what the codec decodes to for it in each step, the residual added before.
        without: the same of the gradients alone.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no step, or not the same number of steps in all three.
    """
    steps = len(gradients)
    if not steps or not steps == len(with_feedback) == len(without):
        raise ValueError(
            f"a gradient and two sent values of each step are needed; got {steps}, {len(with_feedback)}, {len(without)}"
        )
    numbers = range(1, steps + 1)
    given, sent, lossy = (list(accumulate(values)) for values in (gradients, with_feedback, without))
    with style():
        fig = new_figure(height=4.6)
        above, below = fig.subplots(2, 1, sharex=True, height_ratios=(1.6, 1))
        (color, dashes, _), fed, bare = LINE_LOOKS[4], LINE_LOOKS[0], LINE_LOOKS[1]
        above.plot(numbers, given, color=color, lw=5, alpha=0.28, label=_GIVEN)
        for values, (color, dashes, marker), words in ((sent, fed, _WITH), (lossy, bare, _WITHOUT)):
            above.step(numbers, values, where="post", color=color, ls=dashes, lw=1.8, label=words)
            kept = [g - s for g, s in zip(given, values, strict=True)]
            below.step(numbers, kept, where="post", color=color, ls=dashes, lw=1.8)
            below.plot(steps, kept[-1], marker, color=color, ms=6, clip_on=False)
            below.annotate(
                f"{kept[-1]:.2g}", (steps, kept[-1]), (8, 0), textcoords="offset points", va="center", size=9
            )
        above.set_ylabel("sum")
        below.set(ylabel="not sent", xlabel="step", xlim=(1, steps))
        below.axhline(0, color=GRID, lw=1.5, zorder=0)
        for ax in (above, below):
            ax.grid(axis="y", color=GRID)
        headline(above, title, label)
        legend_below(fig, above.get_legend_handles_labels()[0], columns=3)
    return fig
