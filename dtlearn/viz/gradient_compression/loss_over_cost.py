"""The same runs three times: loss over steps, over the bytes that a rank has sent, and over seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..style import GRID, INK, MUTED, headline_above, legend_below, new_figure, style
from ..units import format_bytes, format_seconds
from .looks import METHOD_LOOKS, require_methods, running_mean

if TYPE_CHECKING:
    from dtlearn.gradient_compression.comparing.run import MethodRun

_WINDOW = 5  # steps of the mean that is drawn: a single batch's loss is noisy
_PALE = "#b8bcc2"
_BAND = {"lw": 5.0, "alpha": 0.28}  # of the first method, which others may lie on


def loss_over_cost(
    runs: Iterable[MethodRun],
    target: float | None = None,
    highlight: str | None = None,
    title: str = "The loss, over steps, over bytes and over seconds",
    only_steps: bool = False,
) -> Figure:
    """Draw a line for each method in three panels; each point is the mean of five steps.

    Args:
        runs: of one task, at most ten. The first is drawn as a broad band: others may lie on it.
        target: a loss; where each method first reaches it is marked, and the legend has the bytes and seconds until
            then. None: none.
        highlight: a method that stands out, the others pale; None: all look alike. For a slider.
        title: what the figure is about.
        only_steps: the first panel alone, where the cost is not the question.

    Raises:
        ValueError: no run, too many, or of fewer than five steps; or no run has the name `highlight`.
    """
    shown = {run.name: run for run in runs}
    names = require_methods(shown)
    if min(len(run.losses) for run in shown.values()) < _WINDOW:
        raise ValueError(f"runs of {_WINDOW} steps or more are needed")
    if highlight is not None and highlight not in names:
        raise ValueError(f"highlight must be one of {', '.join(names)}; got {highlight!r}")
    with style():
        fig = new_figure(height=3.2 if only_steps else 4.5)
        panels = list(
            fig.subplots(1, 1 if only_steps else 3, sharey=True, squeeze=False, gridspec_kw={"wspace": 0.07})[0]
        )
        handles: list[Line2D] = []
        for (name, run), (color, dashes, marker) in zip(shown.items(), METHOD_LOOKS, strict=False):
            pale = highlight not in (None, name)
            look: dict[str, Any] = {
                "color": _PALE if pale else color,
                "ls": dashes,
                "lw": 2.8 if highlight == name else 1.6,
            }
            marks = marker
            if not handles and highlight is None:
                look, marks = look | _BAND, ""
            means = running_mean(run.losses, _WINDOW)
            reached = None if target is None else run.steps_to(target, _WINDOW)
            for ax, places in zip(panels, _places(run), strict=False):
                points = [(x, y) for x, y in zip(places[_WINDOW - 1 :], means, strict=True) if x > 0]
                every = (len(METHOD_LOOKS) // 3 + len(handles) % 5, 12)  # markers of two lines seldom meet
                ax.plot(*zip(*points, strict=True), **look, marker=marks, ms=4.5, markevery=every, zorder=2 - pale)
                if reached:
                    at = places[reached - 1], means[reached - _WINDOW]
                    ax.plot(*at, marker=marker, ms=9, color=look["color"], mec=INK, mew=1.2, ls="", zorder=4 - pale)
            handles.append(Line2D([], [], **look, marker=marks, ms=5, label=_words(run, target, reached)))
        _finish(panels, target)
        mean = f"mean of {_WINDOW} steps" + ("" if target is None else f"; below: bytes and seconds to {target:g}")
        headline_above(fig, title, f"{next(iter(shown.values())).label}; {mean}")
        legend_below(fig, handles, columns=5 if target is None else 3)
    return fig


def loss_words(runs: Iterable[MethodRun]) -> str:
    """What each method sent and took, and where its loss ended, in a sentence, for alt texts."""
    return "; ".join(
        f"{run.name}: loss {running_mean(run.losses, min(_WINDOW, len(run.losses)))[-1]:.2f} after "
        f"{format_bytes(sum(run.sent))} and {format_seconds(sum(run.seconds))}"
        for run in runs
    )


def _places(run: MethodRun) -> tuple[list[float], list[float], list[float]]:
    """Where each loss stands: its step, from 1; the bytes that had left a rank's port before; and the seconds."""
    return [float(step) for step in range(1, len(run.losses) + 1)], run.sent_before, run.seconds_before


def _words(run: MethodRun, target: float | None, reached: int | None) -> str:
    if target is None:
        return run.name
    if reached is None:
        return f"{run.name}: not to {target:g}"
    _, sent, seconds = _places(run)
    return f"{run.name}: {format_bytes(sent[reached - 1])}, {format_seconds(seconds[reached - 1])}"


def _finish(panels: list[Axes], target: float | None) -> None:
    steps, *costs = panels
    steps.set(xlabel="step", ylabel="loss (nats)", xlim=(0, None))
    if costs:
        sent, seconds = costs
        sent.set(xlabel="bytes that a rank has sent", xscale="log")
        sent.xaxis.set_major_formatter(lambda value, _: format_bytes(value))
        sent.minorticks_off()
        seconds.set(xlabel="seconds", xlim=(0, None))
    for ax in panels:
        ax.grid(color=GRID)
        if target is not None:
            ax.axhline(target, color=MUTED, lw=1, zorder=0)
    if target is not None:
        steps.annotate(
            f"{target:g}",
            (1, target),
            (-3, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            size=8.5,
            ha="right",
        )
