"""Loss curves of one model, trained in one format after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from ..style import LINE_LOOKS, headline, legend_below, new_figure, style

_WINDOW = 5  # steps of the mean that is drawn: a single batch's loss is noisy


def loss_curves(
    losses: Mapping[str, Sequence[float]], title: str = "One model in several formats", label: str = ""
) -> Figure:
    """Draw losses over the steps, each point the mean of five steps; the legend has the mean of the last ten.

    Args:
        losses: of each step, by format. The first line is drawn thickest, as others may lie on it.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no format, more than five, or fewer than five steps.
    """
    if not 1 <= len(losses) <= len(LINE_LOOKS) or min(map(len, losses.values())) < _WINDOW:
        raise ValueError(f"1 to {len(LINE_LOOKS)} formats are needed, with {_WINDOW} steps or more; got {list(losses)}")
    with style():
        fig = new_figure(height=4.0)
        ax = fig.add_subplot()
        for number, ((name, values), (color, dashes, _)) in enumerate(zip(losses.items(), LINE_LOOKS, strict=False)):
            means = [sum(values[i - _WINDOW + 1 : i + 1]) / _WINDOW for i in range(_WINDOW - 1, len(values))]
            last = values[-10:]
            words = f"{name}: {sum(last) / len(last):.3f}"
            width, strength = (6, 0.3) if number == 0 else (1.8, 1.0)
            ax.plot(
                range(_WINDOW, len(values) + 1),
                means,
                color=color,
                ls="-" if number == 0 else dashes,
                lw=width,
                alpha=strength,
                label=words,
            )
        ax.set(xlabel="step", ylabel="loss (nats per token)")
        ax.set_xlim(_WINDOW, max(map(len, losses.values())))
        ax.grid(axis="y")
        headline(ax, title, "; ".join(filter(None, (label, "lines: mean of 5 steps; numbers: mean of the last 10"))))
        legend_below(fig, ax.get_legend_handles_labels()[0], columns=5)
    return fig
