"""Every weight of a model as a rectangle to scale, cut by rank.

A weight is drawn as the matrix that the input is multiplied with: its rows are the input's features, its columns the
output's. So `nn.Linear.weight`, (outputs, inputs), stands transposed, and column-parallel weights are cut into columns.
The table of an embedding, (V, C), stands as it is: an id is a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from dtlearn.viz.style import INK, LANE, MUTED, headline_above, ink_on, legend_below, new_figure, rank_color, style
from dtlearn.viz.tensor_parallel.local_weights import CutWeight, LocalWeight, cut_weights, num_held, spoken

_ACROSS, _TALLEST = 8.7, 2.9  # inches: of a row of weights, and of the tallest weight
_GAP, _GROUP_GAP, _HEAD, _TITLES = 0.16, 0.42, 0.24, 0.38  # inches
_STRIP, _SPACE = 0.13, 0.06  # inches: height of a vector, which is drawn as a strip, and the space before it
_LETTER = 0.075  # inches
_READ = (
    "Drawn is A of x A: rows are inputs (of a table: tokens), columns are outputs. nn.Linear.weight is A transposed."
)
_Module = list[CutWeight]
_Column = list[_Module]  # below each other
_Group = tuple[str, list[_Column]]  # beside each other, under a name
_Cell = list[_Group]  # below each other


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
    inches = _scale(weights)
    rows = _rows(weights, inches)
    heights = [_row_height(row, inches) for row in rows]
    with style():
        fig = new_figure(height=sum(heights) + 1.3)
        ax = fig.add_subplot()
        for row, top in zip(rows, accumulate(heights, initial=0.0), strict=False):
            _draw_row(ax, row, top, inches, names or {})
        ax.text(0, sum(heights) + 0.1, _READ, va="center", size=8.5, color=MUTED)
        ax.set_xlim(-0.05, _ACROSS + 0.05)
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


def _drawn(weight: CutWeight) -> tuple[int, int, int | None]:
    """Rows and columns as drawn, and which of the two is cut: 0 rows, 1 columns."""
    if len(weight.shape) == 1:
        return 1, weight.shape[0], None if weight.dim is None else 1
    if weight.is_table:
        return weight.shape[0], weight.shape[1], weight.dim
    return weight.shape[1], weight.shape[0], None if weight.dim is None else 1 - weight.dim


def _scale(weights: Sequence[CutWeight]) -> float:
    """Inches of one element, so that the largest weights have room."""
    matrices = [_drawn(weight) for weight in weights if len(weight.shape) > 1]
    widest, tallest = max((m[1] for m in matrices), default=1), max((m[0] for m in matrices), default=1)
    return min(0.45 * _ACROSS / widest, _TALLEST / tallest)


def _rows(weights: Sequence[CutWeight], inches: float) -> list[list[_Cell]]:
    """The groups in rows of the figure's width. Modules of one parent are a group; those of vectors only another."""
    modules: dict[str, _Module] = {}
    for weight in weights:
        modules.setdefault(weight.module, []).append(weight)
    groups: dict[str, list[_Column]] = {}
    norms: list[_Module] = []
    for name, module in modules.items():
        if all(len(weight.shape) == 1 for weight in module):
            norms.append(module)
        else:
            groups.setdefault(name.rpartition(".")[0], []).append([module])
    rows: list[list[_Cell]] = [[]]
    for name, columns in groups.items():
        if rows[-1] and _row_width(rows[-1], inches) + _group_width(columns, inches) > _ACROSS:
            rows.append([])
        rows[-1].append([(name, columns)])
    if norms:
        _put_norms(rows, norms, inches)
    return rows


def _put_norms(rows: list[list[_Cell]], norms: list[_Module], inches: float) -> None:
    """At the end of the last row, or under a low group of it, or in a row of their own."""
    last = rows[-1]
    below, beside = [[norm] for norm in norms], [norms]
    if not last or _row_width(last, inches) + _group_width(beside, inches) <= _ACROSS:
        last.append([("norms", beside)])
        return
    room = _row_height(last, inches) - _group_height(below, inches)
    low = [cell for cell in last if _cell_height(cell, inches) <= room]
    if low and _group_width(below, inches) <= 1.2 * _cell_width(low[0], inches):
        low[0].append(("norms", below))
    else:
        rows.append([[("norms", below)]])


def _width(column: _Column, inches: float) -> float:
    """Of modules below each other, with their names."""
    widest = max(_drawn(weight)[1] for module in column for weight in module) * inches
    return max(widest, _LETTER * max(len(line) for module in column for line in _titles(module)))


def _group_width(columns: Sequence[_Column], inches: float) -> float:
    return sum(_width(column, inches) + _GAP for column in columns)


def _cell_width(cell: _Cell, inches: float) -> float:
    return max(_group_width(columns, inches) for _, columns in cell)


def _row_width(row: Sequence[_Cell], inches: float) -> float:
    """With the space before a next cell."""
    return sum(_cell_width(cell, inches) + _GROUP_GAP for cell in row)


def _height(module: _Module, inches: float) -> float:
    parameters = sum(_drawn(w)[0] * inches if len(w.shape) > 1 else _STRIP + _SPACE for w in module)
    return _TITLES + parameters + 0.12


def _group_height(columns: Sequence[_Column], inches: float) -> float:
    return _HEAD + max(sum(_height(module, inches) for module in column) for column in columns)


def _cell_height(cell: _Cell, inches: float) -> float:
    return sum(_group_height(columns, inches) for _, columns in cell)


def _row_height(row: Sequence[_Cell], inches: float) -> float:
    return max(_cell_height(cell, inches) for cell in row)


def _titles(module: _Module) -> tuple[str, str]:
    """Two lines over a module: its name, and its features."""
    first = module[0]
    rows, columns, _ = _drawn(first)
    size = f"{rows:,} x {columns:,}" if len(first.shape) > 1 else f"{columns:,}"
    return spoken(first.module.rpartition(".")[2]), size


def _draw_row(ax: Axes, row: Sequence[_Cell], top: float, inches: float, names: Mapping[str, str]) -> None:
    x = 0.0
    for cell in row:
        y = top
        for name, columns in cell:
            words = names.get(name, spoken(name))
            ax.text(x, y + 0.1, words, va="center", size=10, weight="bold", color=INK)
            _draw_columns(ax, columns, x, y + _HEAD, inches)
            y += _group_height(columns, inches)
        x += _cell_width(cell, inches) + _GROUP_GAP


def _draw_columns(ax: Axes, columns: Sequence[_Column], x: float, top: float, inches: float) -> None:
    for column in columns:
        y = top
        for module in column:
            title, size = _titles(module)
            ax.text(x, y + 0.09, title, va="center", size=8.5)
            ax.text(x, y + 0.26, size, va="center", size=8, color=MUTED)
            below = y + _TITLES
            for weight in module:
                below = _draw_weight(ax, weight, x, below, inches)
            y += _height(module, inches)
        x += _width(column, inches) + _GAP


def _draw_weight(ax: Axes, weight: CutWeight, x: float, y: float, inches: float) -> float:
    """Draw one parameter; returns where the next one of its module begins."""
    rows, columns, cut = _drawn(weight)
    is_vector = len(weight.shape) == 1
    y += _SPACE * is_vector
    width, height = columns * inches, _STRIP if is_vector else rows * inches
    if cut is None:
        ax.add_patch(Rectangle((x, y), width, height, fc=LANE, ec=MUTED, hatch="....", lw=0.8, gid="whole"))
        return y + height
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
    if weight.head_size and not is_vector:
        for head in range(1, prod(weight.shape) // (rows if cut else columns) // weight.head_size):
            at = head * weight.head_size * inches
            ends = ([x + at] * 2, [y, y + height]) if cut else ([x, x + width], [y + at] * 2)
            ax.plot(*ends, color="white", lw=0.8, ls=(0, (2, 2)), zorder=3, gid="head")
    return y + height


def _write(ax: Axes, owners: range, corner: tuple[float, float], size: tuple[float, float], face: str) -> None:
    """Whose part it is, in the longest words that the part has room for."""
    numbers = ", ".join(map(str, owners))
    word = "rank" if len(owners) == 1 else "ranks"
    for words, turn in ((f"{word} {numbers}", 0), (f"{word} {numbers}", 90), (numbers, 0), (numbers, 90)):
        along, across = size if turn == 0 else size[::-1]
        if along > _LETTER * (len(words) + 0.6) and across > 0.15:
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
    if any(weight.head_size for weight in weights):
        handles.append(Line2D([], [], color=MUTED, lw=1, ls=(0, (2, 2)), label="between heads"))
    return handles
