"""Where each weight stands in the picture of all weights: groups of modules in rows, on one scale.

A weight is drawn as the matrix that the input is multiplied with: its rows are the input's features, its columns the
output's. So `nn.Linear.weight`, (outputs, inputs), stands transposed, and column-parallel weights are cut into columns.
The table of an embedding, (V, C), stands as it is: an id is a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .local_weights import CutWeight, spoken

ACROSS, _TALLEST = 8.7, 2.9  # inches: of a row of weights, and of the tallest weight
GAP, GROUP_GAP, HEAD, TITLES, _BELOW = 0.16, 0.42, 0.24, 0.38, 0.12  # inches
STRIP, SPACE = 0.13, 0.06  # inches: height of a vector, which is drawn as a strip, and the space before it
LETTER = 0.075  # inches
Module = list[CutWeight]
Column = list[Module]  # below each other
NamedGroup = tuple[str, list[Column]]  # beside each other, under a name
Stack = list[NamedGroup]  # below each other
WeightRow = list[Stack]


@dataclass(frozen=True)
class WeightLayout:
    """The rows of a picture.

    Attributes:
        inches: of one element.
        rows: from top to bottom; of each the groups of modules from left to right, some of them below another.
    """

    inches: float
    rows: tuple[WeightRow, ...] = ()

    def width(self, column: Column) -> float:
        """Width in inches of modules below each other, with their names."""
        widest = max(drawn(weight)[1] for module in column for weight in module) * self.inches
        return max(widest, LETTER * max(len(line) for module in column for line in titles(module)))

    def group_width(self, columns: Sequence[Column]) -> float:
        """Width in inches of modules beside each other, each with the gap after it."""
        return sum(self.width(column) + GAP for column in columns)

    def cell_width(self, cell: Stack) -> float:
        """Width in inches of groups below each other."""
        return max(self.group_width(columns) for _, columns in cell)

    def row_width(self, row: WeightRow) -> float:
        """Width in inches of a row, with the space before a next cell."""
        return sum(self.cell_width(cell) + GROUP_GAP for cell in row)

    def height(self, module: Module) -> float:
        """Height in inches of a module with its name, and the space below it."""
        return TITLES + sum(self.weight_height(weight) for weight in module) + _BELOW

    def weight_height(self, weight: CutWeight) -> float:
        """Height in inches of one parameter."""
        return STRIP + SPACE if len(weight.shape) == 1 else drawn(weight)[0] * self.inches

    def group_height(self, columns: Sequence[Column]) -> float:
        """Height in inches of a group with its name."""
        return HEAD + max(sum(self.height(module) for module in column) for column in columns)

    def cell_height(self, cell: Stack) -> float:
        """Height in inches of groups below each other."""
        return sum(self.group_height(columns) for _, columns in cell)

    def row_height(self, row: WeightRow) -> float:
        """Height in inches of a row: that of its highest cell."""
        return max(self.cell_height(cell) for cell in row)


def drawn(weight: CutWeight) -> tuple[int, int, int | None]:
    """Rows and columns as drawn, and which of the two is cut: 0 rows, 1 columns, None neither."""
    if len(weight.shape) == 1:
        return 1, weight.shape[0], None if weight.dim is None else 1
    if weight.is_table:
        return weight.shape[0], weight.shape[1], weight.dim
    return weight.shape[1], weight.shape[0], None if weight.dim is None else 1 - weight.dim


def titles(module: Module) -> tuple[str, str]:
    """Two lines over a module: its name, and its features."""
    first = module[0]
    rows, columns, _ = drawn(first)
    size = f"{rows:,} x {columns:,}" if len(first.shape) > 1 else f"{columns:,}"
    return spoken(first.module.rpartition(".")[2]), size


def weight_layout(weights: Sequence[CutWeight]) -> WeightLayout:
    """Put modules of one parent beside each other, as a group; those that have vectors only are a group of norms.

    Args:
        weights: in the order in which they shall stand.
    """
    matrices = [drawn(weight) for weight in weights if len(weight.shape) > 1]
    widest, tallest = max((m[1] for m in matrices), default=1), max((m[0] for m in matrices), default=1)
    layout = WeightLayout(min(0.45 * ACROSS / widest, _TALLEST / tallest))
    modules: dict[str, Module] = {}
    for weight in weights:
        modules.setdefault(weight.module, []).append(weight)
    groups: dict[str, list[Column]] = {}
    norms: list[Module] = []
    for name, module in modules.items():
        if all(len(weight.shape) == 1 for weight in module):
            norms.append(module)
        else:
            groups.setdefault(name.rpartition(".")[0], []).append([module])
    rows: list[WeightRow] = [[]]
    for name, columns in groups.items():
        if rows[-1] and layout.row_width(rows[-1]) + layout.group_width(columns) > ACROSS:
            rows.append([])
        rows[-1].append([(name, columns)])
    if norms:
        _put_norms(layout, rows, norms)
    return WeightLayout(layout.inches, tuple(rows))


def _put_norms(layout: WeightLayout, rows: list[WeightRow], norms: list[Module]) -> None:
    """Put norms at the end of the last row, or under a low group of it, or in a row of their own."""
    last = rows[-1]
    below, beside = [[norm] for norm in norms], [norms]
    if not last or layout.row_width(last) + layout.group_width(beside) <= ACROSS:
        last.append([("norms", beside)])
        return
    room = layout.row_height(last) - layout.group_height(below)
    low = [cell for cell in last if layout.cell_height(cell) <= room]
    if low and layout.group_width(below) <= 1.2 * layout.cell_width(low[0]):
        low[0].append(("norms", below))
    else:
        rows.append([[("norms", below)]])
