"""The time of a step over the tokens on each GPU: a line of computation, and a level for each way to communicate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ..style import INK, LINE_LOOKS, MUTED, headline, new_figure, style

_AROUND = 5  # the figure ends at so many times the longest messages, and begins at so small a part of the shortest


def step_over_tokens(
    computation: Mapping[int, float],
    communication: Mapping[str, float],
    title: str = "What sets the pace: products or messages?",
    label: str = "",
) -> Figure:
    """Draw both; left of a crossing a step waits for the link, right of it messages can hide behind products.

    Args:
        computation: {tokens on each GPU: seconds of a step's products}, growing in proportion to the tokens.
        communication: {way: seconds of a step's messages}, at most five.
        title: what the figure is about.
        label: which model, GPU and link, printed under the title.

    Raises:
        ValueError: no point or no way, too many ways, or seconds or tokens of 0 or less.
    """
    values = [*computation, *computation.values(), *communication.values()]
    if not computation or not 1 <= len(communication) <= len(LINE_LOOKS) or min(values) <= 0:
        raise ValueError(
            f"points above 0 and 1 to {len(LINE_LOOKS)} ways are needed; got {dict(computation)}, {dict(communication)}"
        )
    tokens = sorted(computation)
    per_token = computation[tokens[-1]] / tokens[-1]
    with style():
        fig = new_figure(height=4.0)
        ax = fig.add_subplot()
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.plot(tokens, [1e3 * computation[n] for n in tokens], color=INK, lw=2)
        low, high = min(communication.values()) / _AROUND, max(communication.values()) * _AROUND
        named = min(tokens[-1], max(tokens[0], high / 2 / per_token))  # a point of the line that is in the figure
        at_the_line: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "color": INK}
        ax.annotate("computation", (named, 1e3 * named * per_token), (-8, 0), **at_the_line)
        is_late = (max(communication.values()) / per_token) ** 2 > tokens[0] * tokens[-1]  # crosses in the right half
        side, shift, align = (tokens[0], 4, "left") if is_late else (tokens[-1], -2, "right")
        for (way, seconds), (color, dashes, marker) in zip(communication.items(), LINE_LOOKS, strict=False):
            ax.axhline(1e3 * seconds, color=color, ls=dashes, lw=1.6)
            crossing = seconds / per_token
            words = f"{way}: {crossing:,.0f} tokens"
            if tokens[0] <= crossing <= tokens[-1]:
                ax.plot(crossing, 1e3 * seconds, marker, color=color, ms=7, mec="white", zorder=4)
            ax.annotate(words, (side, 1e3 * seconds), (shift, 3), color=color, textcoords="offset points", ha=align)
        ax.set_xticks(tokens, [f"{n:,}" for n in tokens])
        ax.set_xlim(tokens[0], tokens[-1])
        ax.set_ylim(1e3 * low, 1e3 * high)
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_minor_formatter(NullFormatter())
        ax.set_xlabel("tokens on each GPU and step")
        ax.set_ylabel("ms for each billion parameters")
        ax.grid(which="major", color=MUTED, alpha=0.25)
        headline(ax, title, label)
    return fig
