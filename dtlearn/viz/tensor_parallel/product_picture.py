"""A product of two divided matrices, block by block: which blocks each rank has, multiplies, adds up and receives.

Every matrix is cut into t x t blocks. A rank's row shows its own X, W and Y: blocks that it has are filled, others are
empty. A block of Y is hatched until all of its t terms are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..picture import draw_frame
from ..style import (
    GRID,
    INK,
    MUTED,
    WIDTH,
    headline_above,
    ink_on,
    new_figure,
    op_style,
    rank_color,
    style,
)

if TYPE_CHECKING:
    from dtlearn.tensor_parallel.notation.product_steps import ProductFrame

_BETWEEN, _RANKS, _NAME, _RIGHT = 0.75, 0.55, 1.75, 1.6  # in blocks: of matrices, of ranks; for names, and at the right
_KEY = (
    "filled: the rank has this block (its row, column); hatched: a partial sum, and its terms; "
    "framed: used or changed in this step"
)
_OPS = {"all_gather": "all-gather", "all_reduce": "all-reduce", "reduce_scatter": "reduce-scatter", "slice": "slice"}
_DIMS = {"X": (0, 1), "W": (1, 2), "Y": (0, 2)}  # which of (i, j, k) number a block


def product_frames(steps: Sequence[ProductFrame]) -> tuple[list[Callable[[Axes], None]], list[str]]:
    """What draws each step, and a line about each: for `stepper`. The first is the state before.

    Args:
        steps: from `dtlearn.tensor_parallel.notation.product_steps`, of the arrays X and W; the product is Y.
    """
    return [partial(_draw, frame=frame, key=True) for frame in steps], _captions(steps)


def product_figure(steps: Sequence[ProductFrame], title: str, label: str = "", columns: int = 3) -> Figure:
    """All steps beside each other.

    Args:
        steps: from `product_steps`, of X and W; the product is Y.
        title: what the figure shows.
        label: words under the title.
        columns: steps in a row.

    Raises:
        ValueError: no step.
    """
    if not steps:
        raise ValueError("a product has a step or more; got none")
    columns = min(columns, len(steps))
    rows = -(-len(steps) // columns)
    _, height = frame_size(steps, WIDTH / columns)
    with style():
        fig = new_figure(height=rows * (height + 0.15) + 0.8, width=WIDTH)
        for number, (frame, caption) in enumerate(zip(steps, _captions(steps), strict=True)):
            ax = fig.add_subplot(rows, columns, number + 1)
            draw_frame(ax, partial(_draw, frame=frame, key=False), f"{number}. {caption}")
        headline_above(fig, title, label)
        fig.supxlabel(_KEY, x=0.01, ha="left", size=8.5, color=MUTED)
    return fig


def frame_size(steps: Sequence[ProductFrame], width: float = 4.4) -> tuple[float, float]:
    """Width and height of one step in inches, for `stepper`."""
    t = len(steps[0].held)
    return width, width * (t * (t + _RANKS) + 1.2) / (_NAME + 3 * t + 2 * _BETWEEN + _RIGHT)


def product_words(steps: Sequence[ProductFrame]) -> str:
    """The steps in words, for alt texts."""
    t = len(steps[0].held)
    arrays = " and ".join(str(array) for array in steps[0].arrays.values())
    parts = [f"{t} ranks, matrices of {t} x {t} blocks, {arrays}."]
    for number, (frame, caption) in enumerate(zip(steps, _captions(steps), strict=True)):
        if frame.op == "product":
            factors = [f"rank {rank} X({m[0]},{m[1]}) W({m[1]},{m[2]})" for rank, m in enumerate(frame.multiplied) if m]
            parts.append(f"Step {number}: {', '.join(factors)}.")
        elif number:
            parts.append(f"Step {number}: {caption}.")
    last = steps[-1]
    whole = all(len(terms) == t for blocks in last.held for terms in blocks["Y"].values())
    blocks = len(last.held[0]["Y"])
    sums = "summed up" if whole else "each a partial sum"
    parts.append(f"At the end each rank has {blocks} of {t * t} blocks of Y, {sums}: {last.arrays['Y']}.")
    return " ".join(parts)


def _captions(steps: Sequence[ProductFrame]) -> list[str]:
    products = sum(frame.op == "product" for frame in steps)
    number, captions = 0, []
    for frame in steps:
        if frame.op == "product":
            number += 1
            captions.append(f"a block product on each rank, {number} of {products}")
        elif frame.op == "start":
            captions.append("before")
        else:
            changed = {name for arrived in frame.arrived for name, _ in arrived} or {"W"}
            now = ", ".join(str(frame.arrays[name]) for name in sorted(changed) if name in frame.arrays)
            captions.append(f"{_OPS[frame.op]}: now {now}")
    return captions


def _draw(ax: Axes, frame: ProductFrame, key: bool) -> None:
    t = len(frame.held)
    lefts = {name: place * (t + _BETWEEN) for place, name in enumerate("XWY")}
    bottom = t * (t + _RANKS) - _RANKS
    for name, left in lefts.items():
        words = str(frame.arrays[name]) if name in frame.arrays else name
        mono: dict[str, Any] = {"va": "center", "size": 8, "family": "DejaVu Sans Mono"}
        is_long = "{" in words  # then it begins with its matrix, and ends at the right of it
        ax.text(left if is_long else left + t / 2, -0.45, words, ha="left" if is_long else "center", **mono)
    for rank in range(t):
        top = rank * (t + _RANKS)
        ax.text(-0.3, top + t / 2, f"rank {rank}", ha="right", va="center", size=8.5, weight="bold")
        for sign, left in (("\u00d7", lefts["W"]), ("=", lefts["Y"])):
            ax.text(left - _BETWEEN / 2, top + t / 2, sign, ha="center", va="center", size=11, color=MUTED)
        for name, left in lefts.items():
            _draw_matrix(ax, frame, rank, name, (left, top))
    if frame.op in _OPS and frame.op != "slice":
        look = op_style(frame.op)
        x = lefts["Y"] + t + 0.35
        bar: dict[str, Any] = {"fc": look.color, "hatch": look.hatch, "ec": "white", "lw": 0}
        ax.add_patch(Rectangle((x, 0), 0.62, bottom, gid=frame.op, **bar))
        plate = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.92}
        ax.text(x + 0.31, bottom / 2, _OPS[frame.op], rotation=90, ha="center", va="center", size=8.5, bbox=plate)
    ax.set_xlim(-_NAME, 3 * t + 2 * _BETWEEN + _RIGHT)
    ax.set_ylim(bottom + 0.1, -0.95)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    if key:
        ax.set_xlabel(_KEY, size=8, color=MUTED)


def _draw_matrix(ax: Axes, frame: ProductFrame, rank: int, name: str, corner: tuple[float, float]) -> None:
    t = len(frame.held)
    blocks = frame.held[rank].get(name, {})
    color = rank_color(rank)
    for i in range(t):
        for j in range(t):
            x, y = corner[0] + j, corner[1] + i
            if (i, j) not in blocks:
                ax.add_patch(Rectangle((x, y), 1, 1, fc="white", ec=GRID, lw=0.8, ls=(0, (2, 2))))
                continue
            terms = blocks[i, j]
            partial_sum = name == "Y" and len(terms) < t
            face: dict[str, Any] = {"fc": color, "ec": "white"}
            if partial_sum:
                face = {"fc": "white", "ec": color, "hatch": "////"}
            ax.add_patch(Rectangle((x, y), 1, 1, lw=0.8, gid=f"{name} of rank {rank}", **face))
            words = _terms(terms, t) if partial_sum else f"{i}{j}"
            plate = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"} if partial_sum else None
            ink = INK if partial_sum else ink_on(color)
            ax.text(x + 0.5, y + 0.5, words, ha="center", va="center", size=7, color=ink, bbox=plate)
    for i, j in sorted(_framed(frame, rank, name)):
        box = Rectangle((corner[0] + j + 0.05, corner[1] + i + 0.05), 0.9, 0.9, fill=False, ec=INK, lw=2, zorder=4)
        ax.add_patch(box)


def _terms(terms: frozenset[int], t: int) -> str:
    """The terms of a partial sum: their numbers j, or how many of them if there is no room."""
    return f"j={'+'.join(map(str, sorted(terms)))}" if len(terms) == 1 else f"{len(terms)} of {t}"


def _framed(frame: ProductFrame, rank: int, name: str) -> set[tuple[int, int]]:
    """The blocks that this step uses or changes."""
    blocks = {block for array, block in frame.arrived[rank] if array == name}
    if multiplied := frame.multiplied[rank]:
        first, second = _DIMS[name]
        blocks.add((multiplied[first], multiplied[second]))
    return blocks
