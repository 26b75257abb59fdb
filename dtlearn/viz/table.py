"""A small table of plain values: HTML with caption and headers for a notebook, aligned text everywhere else."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtlearn.runtime.words import columns

_WIDTH = 110  # characters of a caption beside the file browser in a window of 1280 pixels


@dataclass(frozen=True)
class Table:
    """A table that a notebook shows as HTML and a terminal as text.

    Attributes:
        caption: what the table says.
        columns: header of each column; the first column names the row.
        rows: the cells, as text.
        numeric: for each column, whether it holds numbers only (then it is aligned to the right).
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]

    def __str__(self) -> str:
        rule = tuple("-" * max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True))
        right = [number for number, numeric in enumerate(self.numeric) if numeric]
        return "\n".join([self.caption, *columns((self.columns, rule, *self.rows), right, indent="")])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.html()

    def html(self, width: int = _WIDTH) -> str:
        """The table as HTML; `width`: characters of a line of its caption."""

        def cell(tag: str, scope: str, text: str, right: bool) -> str:
            return f'<{tag}{scope} style="text-align:{"right" if right else "left"}">{html.escape(text)}</{tag}>'

        head = "".join(cell("th", ' scope="col"', c, r) for c, r in zip(self.columns, self.numeric, strict=True))
        body = []
        for row in self.rows:
            first = cell("th", ' scope="row"', row[0], self.numeric[0])
            rest = "".join(cell("td", "", c, r) for c, r in zip(row[1:], self.numeric[1:], strict=True))
            body.append(f"<tr>{first}{rest}</tr>")
        # A caption is as wide as its table unless it may not wrap; then a long one scrolls the page sideways.
        lines = "<br>".join(html.escape(line) for line in textwrap.wrap(self.caption, width))
        caption = f'<caption style="text-align:left;white-space:nowrap">{lines}</caption>'
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def rank_table(rows: Sequence[Mapping[str, Any]], caption: str) -> Table:
    """Make a table from one mapping per row, such as one per rank.

    Args:
        rows: the rows; every row has the same keys, which become the column headers, in the first row's order.
        caption: what the table says.

    Raises:
        ValueError: no rows, or rows with different keys.
    """
    if not rows:
        raise ValueError("a table needs at least one row")
    columns = list(rows[0])
    for number, row in enumerate(rows):
        if set(row) != set(columns):
            raise ValueError(f"row {number} has columns {list(row)}, but row 0 has {columns}")
    numeric = tuple(all(_is_number(row[c]) for row in rows) for c in columns)
    cells = tuple(tuple(_text(row[c]) for c in columns) for row in rows)
    return Table(caption, tuple(str(c) for c in columns), cells, numeric)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if _is_number(value) and not isinstance(value, int):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if _is_number(value) else str(value)
