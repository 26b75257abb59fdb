"""Every weight of a model as a rectangle to scale, cut by rank. `weight_layout` says where each stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from ..style import INK, LANE, MUTED, headline_above, ink_on, legend_below, new_figure, rank_color, style
from .local_weights import CutWeight, LocalWeight, cut_weights, num_held, spoken
from .weight_layout import (
    ACROSS,
    GAP,
    GROUP_GAP,
    HEAD,
    LETTER,
    SPACE,
    STRIP,
    TITLES,
    Column,
    WeightLayout,
    WeightRow,
    drawn,
    titles,
    weight_layout,
)

_READ = (
    "Drawn is A of x A: rows are inputs (of a table: tokens), columns are outputs. nn.Linear.weight is A transposed."
)


def draw_splits(
    ranks: Sequence[Sequence[LocalWeight]],
    title: str = "",
    label: str = "",
    names: Mapping[str, str] | None = None,
) -> Figure:
    """Draw each parameter with the part of each rank; all weights have one scale.

    Args:
        ranks: what `local_weights` found on each rank.
        title: what the figure shows; "": which share of the parameters a rank holds.
        label: words under the title.
        names: what to call a group of modules, by its name in the model, such as {"blocks.0.attention": "attention"}.

    Raises:
        ValueError: ranks whose parameters do not fit together.
    """
    weights = cut_weights(ranks)
    held, total = num_held(ranks)
    title = title or f"Each of {len(ranks)} ranks holds {held:,} of {total:,} parameters"
    layout = weight_layout(weights)
    heights = [layout.row_height(row) for row in layout.rows]
    with style():
        fig = new_figure(height=sum(heights) + 1.3)
        ax = fig.add_subplot()
        for row, top in zip(layout.rows, accumulate(heights, initial=0.0), strict=False):
            _draw_row(ax, layout, row, top, names or {})
        ax.text(0, sum(heights) + 0.1, _READ, va="center", size=8.5, color=MUTED)
        ax.set_xlim(-0.05, ACROSS + 0.05)
        ax.set_ylim(sum(heights) + 0.2, 0)
        ax.set_aspect("equal")
        ax.set_axis_off()
        headline_above(fig, title, label)
        legend_below(fig, _legend(weights, len(ranks)), columns=4)
    return fig


def split_words(ranks: Sequence[Sequence[LocalWeight]]) -> str:
    """The same in words, for alt texts."""
    held, total = num_held(ranks)
    cuts: dict[str, dict[str, list[CutWeight]]] = {}  # by cut, then by module
    for weight in cut_weights(ranks):
        cuts.setdefault(_cut_words(weight), {}).setdefault(weight.module, []).append(weight)
    lists = [f"{cut}: {', '.join(map(_parameter_words, modules.values()))}." for cut, modules in cuts.items()]
    return f"{len(ranks)} ranks, each with {held:,} of {total:,} parameters. " + " ".join(lists)


def _parameter_words(weights: Sequence[CutWeight]) -> str:
    """Those parameters of a module that are cut alike, without the word weight: "up (64, 256) and bias"."""
    words = [f"{weight.module} {weight.shape}" for weight in weights if weight.name.endswith("weight")]
    others = [weight.name.rpartition(".")[2] for weight in weights if not weight.name.endswith("weight")]
    return " and ".join([*(words or [f"{weights[0].module}'s"]), *others]).replace("'s and", "'s")


def _cut_words(weight: CutWeight) -> str:
    if weight.dim is None:
        return "Whole on every rank"
    copied = f", each part on {weight.copies} ranks" if weight.copies > 1 else ""
    if weight.is_table:
        return f"Cut by {'tokens' if weight.dim == 0 else 'features'}{copied}"
    return f"Cut by {'outputs' if weight.dim == 0 else 'inputs'}{' in whole heads' if weight.head_size else ''}{copied}"


def _draw_row(ax: Axes, layout: WeightLayout, row: WeightRow, top: float, names: Mapping[str, str]) -> None:
    x = 0.0
    for cell in row:
        y = top
        for name, columns in cell:
            words = names.get(name, spoken(name))
            ax.text(x, y + 0.1, words, va="center", size=10, weight="bold", color=INK)
            _draw_columns(ax, layout, columns, x, y + HEAD)
            y += layout.group_height(columns)
        x += layout.cell_width(cell) + GROUP_GAP


def _draw_columns(ax: Axes, layout: WeightLayout, columns: Sequence[Column], x: float, top: float) -> None:
    for column in columns:
        y = top
        for module in column:
            title, size = titles(module)
            ax.text(x, y + 0.09, title, va="center", size=8.5)
            ax.text(x, y + 0.26, size, va="center", size=8, color=MUTED)
            below = y + TITLES
            for weight in module:
                _draw_weight(ax, weight, x, below, layout.inches)
                below += layout.weight_height(weight)
            y += layout.height(module)
        x += layout.width(column) + GAP


def _draw_weight(ax: Axes, weight: CutWeight, x: float, y: float, inches: float) -> None:
    rows, columns, cut = drawn(weight)
    is_vector = len(weight.shape) == 1
    y += SPACE * is_vector
    width, height = columns * inches, STRIP if is_vector else rows * inches
    if cut is None:
        ax.add_patch(Rectangle((x, y), width, height, fc=LANE, ec=MUTED, hatch="....", lw=0.8, gid="whole"))
        return
    sizes = weight.sizes[:: weight.copies]
    for part, (start, size) in enumerate(zip(accumulate(sizes, initial=0), sizes, strict=False)):
        owners = range(part * weight.copies, (part + 1) * weight.copies)
        share = (start / sum(sizes), size / sum(sizes))
        left, wide = (x + share[0] * width, share[1] * width) if cut else (x, width)
        upper, high = (y, height) if cut else (y + share[0] * height, share[1] * height)
        face = rank_color(owners[0])
        ax.add_patch(Rectangle((left, upper), wide, high, fc=face, ec="white", lw=1.4, gid=f"rank {owners[0]}"))
        if not is_vector:
            _write(ax, owners, (left, upper), (wide, high), face)
    for at in _inner_heads(weight, columns if cut else rows):
        ends = ([x + at * inches] * 2, [y, y + height]) if cut else ([x, x + width], [y + at * inches] * 2)
        ax.plot(*ends, color="white", lw=0.8, ls=(0, (2, 2)), zorder=3, gid="head")


def _inner_heads(weight: CutWeight, length: int) -> list[int]:
    """Where one head ends and another begins on the same rank, in elements of a matrix's divided dim."""
    if not weight.head_size or len(weight.shape) == 1:
        return []
    return [at for at in range(weight.head_size, length, weight.head_size) if at % weight.sizes[0]]


def _write(ax: Axes, owners: range, corner: tuple[float, float], size: tuple[float, float], face: str) -> None:
    """Write whose part it is, in the longest words that the part has room for."""
    numbers = ", ".join(map(str, owners))
    word = "rank" if len(owners) == 1 else "ranks"
    for words, turn in ((f"{word} {numbers}", 0), (f"{word} {numbers}", 90), (numbers, 0), (numbers, 90)):
        along, across = size if turn == 0 else size[::-1]
        if along > LETTER * (len(words) + 0.6) and across > 0.15:
            plate = {"boxstyle": "square,pad=0.1", "fc": face, "ec": "none"}
            look: dict[str, Any] = {"ha": "center", "va": "center", "size": 8, "color": ink_on(face), "bbox": plate}
            ax.text(corner[0] + size[0] / 2, corner[1] + size[1] / 2, words, rotation=turn, zorder=4, **look)
            return


def _legend(weights: Sequence[CutWeight], num_ranks: int) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [Patch(fc=rank_color(rank), label=f"rank {rank}") for rank in range(num_ranks)]
    if any(weight.dim is None for weight in weights):
        handles.append(Patch(fc=LANE, ec=MUTED, hatch="....", lw=0.8, label="whole on every rank"))
    if any(len(weight.shape) == 1 for weight in weights):
        handles.append(Line2D([], [], color=MUTED, lw=4, label="strip: a bias or norm (one row, not to scale)"))
    if any(weight.dim is not None and _inner_heads(weight, weight.shape[weight.dim]) for weight in weights):
        handles.append(Line2D([], [], color=MUTED, lw=1, ls=(0, (2, 2)), label="between heads of a rank"))
    return handles
