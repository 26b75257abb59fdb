"""A recorded collective with its ranks where the algorithm puts them: on a circle, or in nodes.

One picture per step. A rank is a row of cells, one per chunk; arrows run between the rows and cover none. Steps stand
under the name of their phase ("reduce-scatter").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from ..collectives.collective_steps import CollectiveSteps, Contributors, StepMessage
from ..style import INK, LANE, MUTED, RANK_COLORS, new_figure, style
from ..units import format_bytes

SLOW = "#D55E00"  # arrows between nodes; they are thick and dashed too
_CELL = 0.085  # of the picture's width
_HEIGHT = 0.12


@dataclass(frozen=True)
class Places:
    """Where the ranks of a group stand.

    Attributes:
        at: the middle of each rank's row of cells, in parts of the picture, from its lower left corner.
        nodes: ranks (of the group) that share a node, which is drawn as a box; empty: no nodes.
    """

    at: tuple[tuple[float, float], ...]
    nodes: tuple[range, ...] = ()

    def crosses(self, src: int, dst: int) -> bool:
        """Whether a message between these ranks leaves a node."""
        return any((src in node) != (dst in node) for node in self.nodes)


def circle(num_ranks: int) -> Places:
    """Rank 0 on top, the others clockwise: the right neighbour of each is the next one."""
    turns = [2 * math.pi * r / num_ranks for r in range(num_ranks)]
    return Places(tuple((0.5 + 0.3 * math.sin(t), 0.47 + 0.36 * math.cos(t)) for t in turns))


def in_nodes(num_ranks: int, ranks_per_node: int) -> Places:
    """Nodes side by side; the ranks of a node one below the other."""
    count = num_ranks // ranks_per_node
    at = []
    for rank in range(num_ranks):
        node, place = divmod(rank, ranks_per_node)
        at.append(((node + 0.5) / count, 0.9 - 0.86 * (place + 0.5) / ranks_per_node))
    return Places(tuple(at), tuple(range(m * ranks_per_node, (m + 1) * ranks_per_node) for m in range(count)))


def placed_figure(
    steps: CollectiveSteps, places: Places, title: str, phases: Mapping[str, int] | None = None, columns: int = 3
) -> Figure:
    """All steps, each phase under its name.

    Args:
        steps: from `collective_steps`.
        places: one for each rank.
        title: what the figure is about.
        phases: how many steps each phase has, in order; None: the steps have no phases.
        columns: pictures in a row.

    Raises:
        ValueError: `rows` or `phases` are for other ranks or steps.
    """
    names = _phase_of(steps, phases)
    if len(places.at) != len(steps.ranks):
        raise ValueError(f"{len(places.at)} places for {len(steps.ranks)} ranks")
    rows = _rows(phases or {"": len(steps.messages)}, columns)
    frames, _ = placed_frames(steps, places, phases)
    with style():
        fig = new_figure(height=0.75 + rows_height(places) * sum(_lines(row, columns) for row in rows))
        fig.suptitle(title, x=0.005, ha="left", weight="bold", size=12)
        number = 1
        bands = fig.subfigures(len(rows), 1, squeeze=False)[:, 0]
        for band, row in zip(bands, rows, strict=True):
            parts = band.subfigures(1, len(row), width_ratios=list(row.values()), squeeze=False)[0]
            for part, (name, count) in zip(parts, row.items(), strict=True):
                if name:
                    part.suptitle(name, size=10, weight="bold", color=INK)
                across = min(count, columns)
                for place in range(count):
                    ax = part.add_subplot(-(-count // across), across, place + 1)
                    frames[number](ax)
                    step = f"step {number}: {_messages_words(steps.messages[number - 1])}"
                    ax.set_title(step, size=9, weight="normal", pad=3)
                    number += 1
        assert number == len(names) + 1
        run = f"Run: {steps.label}. " if steps.label else ""
        fig.supxlabel(run + how_to_read_places(places), x=0.005, ha="left", size=8.5, color=MUTED)
    return fig


def placed_frames(
    steps: CollectiveSteps, places: Places, phases: Mapping[str, int] | None = None
) -> tuple[list[Callable[[Axes], None]], list[str]]:
    """A function that draws each state, and a line about each; the first is the state before the first step."""
    names = _phase_of(steps, phases)
    frames: list[Callable[[Axes], None]] = [
        partial(_draw, steps=steps, number=k, places=places) for k in range(len(steps.states))
    ]
    captions = [
        f"{n}: {words}" if n else words for n, words in zip(names, map(_messages_words, steps.messages), strict=True)
    ]
    return frames, ["before", *captions]


def how_to_read_places(places: Places) -> str:
    """The words under the figure."""
    slow = "; dashed: between nodes" if places.nodes else ""
    return (
        "Cells of a rank: its chunks. Stripe: that rank's data is summed in it; \u03a3: all ranks' data. "
        f"Framed: just received.\nArrow: a message, with the number of its chunk{slow}."
    )


def rows_height(places: Places) -> float:
    """Height of a row of pictures, in inches."""
    return 2.5 if not places.nodes else 1.0 + 0.62 * len(places.nodes[0])


def _phase_of(steps: CollectiveSteps, phases: Mapping[str, int] | None) -> list[str]:
    """The phase of each step."""
    names = [name for name, count in (phases or {"": len(steps.messages)}).items() for _ in range(count)]
    if len(names) != len(steps.messages):
        raise ValueError(f"the phases have {len(names)} steps; the record has {len(steps.messages)}")
    return names


def _rows(phases: Mapping[str, int], columns: int) -> list[dict[str, int]]:
    """The phases of each row of pictures, with their numbers of steps."""
    rows: list[dict[str, int]] = []
    for name, count in phases.items():
        if rows and sum(rows[-1].values()) + count <= columns:
            rows[-1][name] = count
        else:
            rows.append({name: count})
    return rows


def _lines(row: Mapping[str, int], columns: int) -> int:
    return max(-(-count // columns) for count in row.values())


def _draw(ax: Axes, steps: CollectiveSteps, number: int, places: Places) -> None:
    """The state after a step, with the messages of this step."""
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.axis("off")
    half = _CELL * steps.num_chunks / 2
    for number_of_node, node in enumerate(places.nodes):
        xs, ys = zip(*(places.at[r] for r in node), strict=True)
        low, high = min(ys) - 0.17, max(ys) + 0.2
        corner = (min(xs) - half - 0.045, low)
        box = FancyBboxPatch(corner, 2 * half + 0.09, high - low, boxstyle="round,pad=0,rounding_size=0.03")
        box.set(fc="#fafbfc", ec=MUTED, lw=1.1, zorder=0)
        ax.add_patch(box)
        ax.text(min(xs), high + 0.015, f"node {number_of_node}", ha="center", va="bottom", size=8, color=MUTED)
    messages = steps.messages[number - 1] if number else ()
    index = {rank: i for i, rank in enumerate(steps.ranks)}
    for rank, cells in zip(steps.ranks, steps.states[number], strict=True):
        taken = {c for m in messages if m.dst == rank for c in range(m.first or 0, m.last or 0)}
        _draw_rank(ax, places.at[index[rank]], rank, cells, taken, steps.ranks)
    pairs = {(m.src, m.dst) for m in messages}
    for m in messages:
        src, dst = index[m.src], index[m.dst]
        both_ways = (m.dst, m.src) in pairs
        _draw_arrow(ax, places, src, dst, _chunks_words(m), half, both_ways)


def _draw_rank(
    ax: Axes, at: tuple[float, float], rank: int, cells: Sequence[Contributors], taken: set[int], ranks: Sequence[int]
) -> None:
    left, low = at[0] - _CELL * len(cells) / 2, at[1] - _HEIGHT / 2
    ax.text(left, low + _HEIGHT + 0.012, f"rank {rank}", size=8, va="bottom", weight="bold")
    for chunk, held in enumerate(cells):
        x = left + chunk * _CELL
        ax.text(x + _CELL / 2, low - 0.012, str(chunk), size=6.5, ha="center", va="top", color=MUTED)
        full = held is not None and len(held) == len(ranks)
        ax.add_patch(Rectangle((x, low), _CELL, _HEIGHT, fc=INK if full else LANE, ec="white", lw=1.5))
        if full:
            ax.text(x + _CELL / 2, at[1], "\u03a3", color="white", size=9, ha="center", va="center", weight="bold")
        for place, other in enumerate(ranks if held and not full else ()):
            if held is not None and other in held:
                stripe = (_CELL - 0.012) / len(ranks)
                color = RANK_COLORS[other % len(RANK_COLORS)]
                corner = (x + 0.006 + place * stripe, low + 0.008)
                ax.add_patch(Rectangle(corner, stripe, _HEIGHT - 0.016, fc=color, lw=0))
        if chunk in taken:
            ax.add_patch(Rectangle((x, low), _CELL, _HEIGHT, fill=False, ec=INK, lw=1.8, zorder=4))
            if full:  # a dark frame around a dark cell needs a light line inside
                inner = (_CELL - 0.018, _HEIGHT - 0.026)
                ax.add_patch(Rectangle((x + 0.009, low + 0.013), *inner, fill=False, ec="white", lw=1.1, zorder=5))


def _draw_arrow(ax: Axes, places: Places, src: int, dst: int, words: str, half: float, both_ways: bool) -> None:
    """Draw an arrow from the edge of one row to the edge of another; two in opposite directions are side by side."""
    (x0, y0), (x1, y1) = places.at[src], places.at[dst]
    slow = places.crosses(src, dst)
    if abs(y1 - y0) < 1e-6:  # beside each other
        side = 1 if x1 > x0 else -1
        lift = 0.035 * side if both_ways else 0
        tail, head = (x0 + side * (half + 0.01), y0 + lift), (x1 - side * (half + 0.01), y1 + lift)
        label, ha = ((tail[0] + head[0]) / 2, tail[1] + (0.02 if lift >= 0 else -0.02)), "center"
        va = "bottom" if lift >= 0 else "top"
    elif abs(x1 - x0) < 1e-6:  # below each other
        side = 1 if y1 > y0 else -1
        # Between two cells, so that it passes their numbers; down, it ends above the name of the rank.
        odd = round(2 * half / _CELL) % 2
        shift = _CELL * side * (0.5 if odd else float(both_ways))
        tail = (x0 + shift, y0 + side * (_HEIGHT / 2 + 0.03))
        head = (x1 + shift, y1 - side * (_HEIGHT / 2 + (0.03 if side > 0 else 0.115)))
        label, ha, va = (
            (tail[0] + 0.015 * (side or 1), (tail[1] + head[1]) / 2),
            "left" if side > 0 else "right",
            "center",
        )
    else:  # along the circle
        middle = 0.5
        tail, head = _edge((x0, y0), (x1, y1), half), _edge((x1, y1), (x0, y0), half)
        out = (tail[0] + head[0]) / 2 - middle
        label = ((tail[0] + head[0]) / 2 + 0.04 * (1 if out > 0 else -1), (tail[1] + head[1]) / 2)
        ha, va = "left" if out > 0 else "right", "center"
    arrow = FancyArrowPatch(tail, head, arrowstyle="-|>", mutation_scale=11, shrinkA=0, shrinkB=0)
    arrow.set(color=SLOW if slow else INK, lw=2.2 if slow else 1.4, linestyle=(0, (4, 1.6)) if slow else "-", zorder=5)
    ax.add_patch(arrow)
    ax.text(*label, words, size=7.5, ha=ha, va=va, color=SLOW if slow else INK)


def _edge(at: tuple[float, float], toward: tuple[float, float], half: float) -> tuple[float, float]:
    """Where an arrow toward another rank touches this one's row: at its end, or in its middle if that stands below."""
    x, y = at
    if abs(toward[1] - y) > 0.3 and abs(x - 0.5) > 0.1:  # this rank stands at the side: above or below its row
        up = toward[1] > y
        return x, y + (0.15 if up else -0.12)
    return x + (half + 0.015) * (1 if toward[0] > x else -1), y


def _chunks_words(m: StepMessage) -> str:
    if m.first is None or m.last is None:
        return ""
    return str(m.first) if m.last == m.first + 1 else f"{m.first}\u2013{m.last - 1}"


def _messages_words(messages: Sequence[StepMessage]) -> str:
    sizes = {m.nbytes for m in messages}
    words = f"{len(messages)} message{'s' * (len(messages) != 1)}"
    each = format_bytes(sizes.pop()) if len(sizes) == 1 else ""
    return f"{words} of {each}" if each else f"{words}, {format_bytes(sum(m.nbytes for m in messages))}"
