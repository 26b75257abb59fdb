"""A layer's forward and backward pass as a chain of operations, with each recorded collective in its place.

The chain goes down. What the forward pass sends stands in the left lane, what the backward pass sends in the right one,
so each row between two operations shows a pair of conjugate operators: what they do forward and what backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from ..style import (
    INK,
    LANE,
    MUTED,
    WIDTH,
    headline_above,
    legend_below,
    new_figure,
    op_patch,
    op_style,
    style,
)
from ..units import format_bytes
from .layer_chain import LayerCall, LayerChain, LayerOperation, LayerRun, layer_chain
from .local_weights import spoken
from .module_runs import BACKWARD, FORWARD

_OPERATION, _CALL, _SILENT, _NOTE = 0.40, 0.36, 0.17, 0.24  # heights in inches
_ALONE = 6.2  # inches: width of a chain that stands alone
_LANES = {FORWARD: (0.02, 0.445), BACKWARD: (0.535, 0.445)}  # left end and width, as shares of the panel
_PLATE = {"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none", "alpha": 0.92}
_PAIRS = {("", "all_reduce"): "f", ("all_reduce", ""): "g"}  # forward and backward; the paper's names


def draw_layer(
    runs: Mapping[str, LayerRun],
    title: str = "What a layer sends, and where",
    label: str = "",
    between: Mapping[str, str] | None = None,
) -> Figure:
    """Draw recorded layers beside each other, each as its chain of operations.

    Args:
        runs: by name; at most two stand beside each other.
        title: what the figure shows.
        label: words under the title.
        between: {full name of a module: what is computed between the module before and this one, without parameters}.

    Raises:
        ValueError: no run or more than two, or one that is not of one forward and one backward pass.
    """
    if not 1 <= len(runs) <= 2:
        raise ValueError(f"one run or two are drawn beside each other; got {list(runs)}")
    chains = {name: layer_chain(run) for name, run in runs.items()}
    notes = dict(between or {})
    height = max(_height(chain, notes) for chain in chains.values())
    with style():
        fig = new_figure(height=height + 1.5, width=WIDTH if len(chains) > 1 else _ALONE)
        axes = fig.subplots(1, len(chains), squeeze=False)[0]
        for ax, (name, chain) in zip(axes, chains.items(), strict=True):
            _draw_chain(ax, chain, notes, height)
            ax.set_title(name, loc="left", size=10, pad=14)
        headline_above(fig, title, label)
        ops = sorted({call.op for chain in chains.values() for call in chain.calls})
        legend_below(fig, map(op_patch, ops))
    return fig


def layer_words(runs: Mapping[str, LayerRun]) -> str:
    """The same in words, for alt texts."""
    parts = []
    for name, run in runs.items():
        chain = layer_chain(run)
        parts.append(f"{name}: {' then '.join(_name(o) for o in chain.operations)}.")
        for phase in (FORWARD, BACKWARD):
            calls = [f"{_words(call)} {_where(chain, call)}" for call in chain.during(phase)]
            parts.append(f"{phase.capitalize()}: {'; '.join(calls) or 'nothing is sent'}.")
        if after := chain.during(""):
            parts.append(f"After backward: {'; '.join(map(_words, after))}.")
    return " ".join(parts)


def _where(chain: LayerChain, call: LayerCall) -> str:
    place = call.place or 0
    if place == 0:
        return f"before {_name(chain.operations[0])}"
    before = f"after {_name(chain.operations[place - 1])}"
    return before if place == len(chain.operations) else f"between {before[6:]} and {_name(chain.operations[place])}"


def _name(operation: LayerOperation) -> str:
    return ", ".join(map(spoken, operation.names))


def _words(call: LayerCall) -> str:
    return f"{call.op.replace('_', '-')}, {format_bytes(call.sent)}"


def _gap(chain: LayerChain, place: int) -> float:
    """Height of the row between two operations."""
    most = max(len(chain.at(place, phase)) for phase in (FORWARD, BACKWARD))
    return most * _CALL + 0.1 if most else _SILENT


def _height(chain: LayerChain, notes: Mapping[str, str]) -> float:
    gaps = sum(_gap(chain, place) for place in range(len(chain.operations) + 1))
    extra = sum(_NOTE + _SILENT for o in chain.operations if o.module in notes)
    return gaps + extra + _OPERATION * len(chain.operations) + 0.08 + 0.17 * len(_sums(chain))


def _draw_chain(ax: Axes, chain: LayerChain, notes: Mapping[str, str], height: float) -> None:
    y = 0.0
    for place, operation in enumerate((*chain.operations, None)):
        y = _draw_place(ax, chain, place, y)
        if operation is None:
            break
        if words := notes.get(operation.module):
            box = Rectangle((0.02, y), 0.96, _NOTE, fc="white", ec=MUTED, lw=0.8, ls=(0, (3, 2)))
            ax.add_patch(box)
            ax.text(0.045, y + _NOTE / 2, words, va="center_baseline", size=8, color=MUTED)
            y = _arrows(ax, y + _NOTE, _SILENT)
        _draw_operation(ax, operation, y)
        y += _OPERATION
    for row, text in enumerate(_sums(chain)):
        ax.text(0.02, y + 0.04 + 0.17 * row, text, va="top", size=8.5, weight="normal" if row > 1 else "bold")
    for phase, (left, width) in _LANES.items():
        mark = "forward \u2193" if phase == FORWARD else "backward \u2191"
        ax.text(left + width / 2, -0.02, mark, ha="center", va="bottom", size=8.5, color=MUTED)
    ax.set_xlim(0, 1)
    ax.set_ylim(height, 0)
    ax.set_axis_off()


def _sums(chain: LayerChain) -> list[str]:
    """What each pass sends, in words, and what is sent after them."""
    sums = []
    for phase, name in ((FORWARD, "forward"), (BACKWARD, "backward"), ("", "after backward")):
        calls = chain.during(phase)
        counts = [(sum(c.op == op for c in calls), op.replace("_", "-")) for op in dict.fromkeys(c.op for c in calls)]
        words = " + ".join(f"{n} {op}{'s' * (n > 1)}" for n, op in counts)
        if calls:
            sums.append(f"{name}: {words}, {format_bytes(sum(c.sent for c in calls))}")
        elif phase:
            sums.append(f"{name}: nothing")
    return sums


def _draw_operation(ax: Axes, operation: LayerOperation, y: float) -> None:
    ax.add_patch(Rectangle((0.02, y), 0.96, _OPERATION, fc=LANE, ec=MUTED, lw=0.8))
    ax.text(0.045, y + 0.36 * _OPERATION, _name(operation), va="center", size=9, weight="bold", color=INK)
    ax.text(0.045, y + 0.76 * _OPERATION, operation.cut or "weights whole on every rank", va="center", size=7.5)
    shapes = f"{_shape(operation.inputs)} \u2192 {_shape(operation.outputs)}"
    ax.text(0.955, y + _OPERATION / 2, shapes, ha="right", va="center", size=8, color=INK)


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _draw_place(ax: Axes, chain: LayerChain, place: int, y: float) -> float:
    """Draw the row before operation `place`, and return where it ends."""
    gap = _gap(chain, place)
    end = _arrows(ax, y, gap)
    pair = []
    for phase, (left, width) in _LANES.items():
        calls = chain.at(place, phase)
        pair.append(" ".join(call.op for call in calls))
        for number, call in enumerate(calls):
            top = y + 0.05 + number * _CALL + 0.04
            look = op_style(call.op)
            face: dict[str, Any] = {"fc": look.color, "hatch": look.hatch, "ec": "white", "lw": 0.6}
            ax.add_patch(Rectangle((left, top), width, _CALL - 0.08, zorder=3, gid=call.op, **face))
            middle = (left + width / 2, top + _CALL / 2 - 0.04)
            ax.text(*middle, _words(call), ha="center", va="center", size=8, zorder=4, bbox=_PLATE)
    if name := _PAIRS.get((pair[0], pair[1])):
        ax.text(0.5, y + gap / 2, name, ha="center", va="center", size=11, style="italic", weight="bold", zorder=4)
    return end


def _arrows(ax: Axes, y: float, gap: float) -> float:
    """Draw arrows from one row to the next, forward down and backward up, and return where the next row begins."""
    for phase, (left, width) in _LANES.items():
        ends = [(left + width / 2, y + 0.01), (left + width / 2, y + gap - 0.01)]
        tail, head = ends if phase == FORWARD else ends[::-1]
        look: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 7, "lw": 1, "color": MUTED}
        ax.add_patch(FancyArrowPatch(tail, head, shrinkA=0, shrinkB=0, zorder=2, **look))
    return y + gap
