"""Bytes that a rank sends for one layer, over the number of ranks: recorded calls as bars, the formula as marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..style import INK, MUTED, headline, legend_below, new_figure, op_patch, op_style, style

_KB = 1e3
_GROUP = 0.8  # width of the bars of one number of ranks
Sent = Mapping[str, Mapping[int, Mapping[str, float]]]
Formula = Mapping[str, Mapping[int, float]]


def layer_traffic(
    sent: Sent,
    formula: Formula,
    limit: tuple[str, float] | None = None,
    title: str = "Bytes of a layer over the number of ranks",
    label: str = "",
) -> Figure:
    """Draw a group of bars for each number of ranks, one bar for each kind of layer, stacked by operation.

    Args:
        sent: {kind of layer: {number of ranks: {operation: bytes}}}, as `sent_by_operation` counts them.
        formula: {kind of layer: {number of ranks: bytes}}, a mark on each bar.
        limit: what the formula tends to with more and more ranks: its name and bytes, a horizontal line.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no bar, or one without a formula.
    """
    numbers = sorted({t for by_ranks in sent.values() for t in by_ranks})
    if not numbers or any(set(by_ranks) - set(formula.get(kind, {})) for kind, by_ranks in sent.items()):
        raise ValueError(
            "bytes of a layer are needed, and a formula for each kind and number of ranks; got "
            f"{ {kind: list(by_ranks) for kind, by_ranks in sent.items()} } and "
            f"{ {kind: list(by_ranks) for kind, by_ranks in formula.items()} }"
        )
    ops = sorted({op for by_ranks in sent.values() for parts in by_ranks.values() for op in parts})
    marks = [formula[kind][t] for kind, by_ranks in sent.items() for t in by_ranks]
    highest = max([*marks, limit[1] if limit else 0.0]) / _KB or 1
    width = _GROUP / len(sent)
    with style():
        fig = new_figure(height=3.9)
        ax = fig.add_subplot()
        for group, t in enumerate(numbers):
            for place, (kind, by_ranks) in enumerate(sent.items()):
                x = group - _GROUP / 2 + (place + 0.5) * width
                if t in by_ranks:
                    _draw_bar(ax, x, width, by_ranks[t], ops, formula[kind][t])
                if len(sent) > 1 and t in by_ranks:
                    under: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "top", "size": 8}
                    ax.annotate(kind, (x, 0), (0, -4), color=MUTED, **under)
        handles: list[Any] = [*map(op_patch, ops), Line2D([], [], color=INK, lw=2, label="formula")]
        if limit:
            ax.axhline(limit[1] / _KB, color=MUTED, lw=1.2, ls=(0, (4, 2)), zorder=1)
            handles.append(Line2D([], [], color=MUTED, lw=1.2, ls=(0, (4, 2)), label=limit[0]))
        ax.set_xticks(range(len(numbers)), [f"t = {t}" for t in numbers])
        ax.tick_params(axis="x", length=0, pad=18 if len(sent) > 1 else 4)
        ax.set_xlim(-0.6, len(numbers) - 0.4)
        ax.set_ylim(0, 1.18 * highest)
        ax.set_xlabel("ranks of the tensor-parallel group")
        ax.set_ylabel("sent by one rank (kB = 10³ bytes)")
        ax.grid(axis="y")
        headline(ax, title, label)
        legend_below(fig, handles)
    return fig


def _draw_bar(ax: Axes, x: float, width: float, parts: Mapping[str, float], ops: Sequence[str], formula: float) -> None:
    at = 0.0
    for op in ops:
        height, look = parts.get(op, 0.0) / _KB, op_style(op)
        if height:
            ax.bar(x, height, 0.8 * width, at, color=look.color, hatch=look.hatch, ec="white", lw=0.4, gid=op)
        at += height
    mark = formula / _KB
    ax.plot([x - 0.47 * width, x + 0.47 * width], [mark, mark], color=INK, lw=2, zorder=4)
    words: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "size": 8.5}
    ax.annotate(f"{at:,.4g}", (x, max(at, mark)), (0, 3), **words)
