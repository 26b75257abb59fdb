"""A map of the memory at the peak: a rectangle per module, divided by category, each area its bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..style import INK, headline, legend_below, new_figure, style
from .categories import LOOKS, MB, in_order, patch

if TYPE_CHECKING:
    from dtlearn.memory.ledger.record import MemoryRecord

_SIZE = (9.0, 4.4)  # of the whole map, in inches: rectangles are divided on the scale on which they are seen
_LETTER, _LINE = 0.068, 0.17  # width of a letter and height of a line, in inches
_PART = re.compile(r"[^.]+(?:\.\d+)*")  # of a dotted name
NOBODY = "no module"


class Tile(NamedTuple):
    """A rectangle in a map, in inches from its lower left corner."""

    x: float
    y: float
    width: float
    height: float


def tiles(areas: Sequence[float], whole: Tile) -> list[Tile]:
    """Divide a rectangle into parts of these areas (in any unit), each as near to a square as its turn allows.

    Source: Bruls, Huizing and van Wijk, "Squarified Treemaps", 2000.

    Args:
        areas: above 0, the largest first.
        whole: the rectangle.

    Returns:
        The rectangles, in the order of `areas`.

    Raises:
        ValueError: an area that is not above 0.
    """
    if min(areas, default=1) <= 0:
        raise ValueError(f"areas are above 0, got {list(areas)}")
    scale = whole.width * whole.height / (sum(areas) or 1)
    left = [area * scale for area in areas]
    placed: list[Tile] = []
    x, y, width, height = whole
    while left:
        short = min(width, height)
        many = 1
        while many < len(left) and _worst(left[: many + 1], short) <= _worst(left[:many], short):
            many += 1
        row, left = left[:many], left[many:]
        thick, at = sum(row) / short, 0.0
        for area in row:
            long = area / thick
            placed.append(Tile(x, y + at, thick, long) if width >= height else Tile(x + at, y, long, thick))
            at += long
        if width >= height:
            x, width = x + thick, width - thick
        else:
            y, height = y + thick, height - thick
    return placed


def _worst(row: Sequence[float], short: float) -> float:
    """The worst ratio of long to short side, if these areas make one row along a side of that length."""
    total = sum(row)
    return max(max(short * short * area / total**2, total**2 / (short * short * area)) for area in row)


def bytes_by_module(record: MemoryRecord, at: int | None = None, depth: int = 1) -> dict[str, dict[str, int]]:
    """Bytes alive by module and category, the largest module first.

    Args:
        record: of one step.
        at: a tick of its clock; None: the peak.
        depth: how many parts of a module's dotted name count; a number belongs to the name before it. So 1 puts
            `blocks.0.attention.query` into `blocks.0`, and `head.norm` into `head`.

    Raises:
        ValueError: a depth below 1.
    """
    if depth < 1:
        raise ValueError(f"depth must be 1 or more, got {depth}")
    at = record.peak.at if at is None else at
    held: dict[str, dict[str, int]] = {}
    for each in record.at(at):
        name = ".".join(_PART.findall(each.module)[:depth]) or NOBODY
        categories = held.setdefault(name, {})
        categories[each.category] = categories.get(each.category, 0) + each.bytes
    return dict(sorted(held.items(), key=lambda item: -sum(item[1].values())))


def module_map(
    record: MemoryRecord, title: str = "Who holds the memory at the peak", label: str = "", depth: int = 1
) -> Figure:
    """Draw the bytes that are alive at the peak: a framed rectangle per module, divided by category.

    Args:
        record: of one step.
        title: what the figure is about.
        label: where the record comes from, printed under the title.
        depth: see `bytes_by_module`.

    Raises:
        ValueError: nothing is alive at the peak, or a depth below 1.
    """
    held = {name: {c: n for c, n in parts.items() if n} for name, parts in bytes_by_module(record, depth=depth).items()}
    held = {name: parts for name, parts in held.items() if parts}
    if not held:
        raise ValueError("a map needs bytes that are alive at the peak; this record has none")
    total = sum(sum(parts.values()) for parts in held.values())
    with style():
        fig = new_figure(height=_SIZE[1] + 1.1, width=_SIZE[0])
        ax = fig.add_subplot()
        frames = tiles([sum(parts.values()) for parts in held.values()], Tile(0, 0, *_SIZE))
        for (name, parts), frame in zip(held.items(), frames, strict=True):
            ordered = dict(sorted(parts.items(), key=lambda item: -item[1]))
            for category, tile in zip(ordered, tiles(list(ordered.values()), frame), strict=True):
                look = LOOKS[category]
                box = Rectangle(tile[:2], tile.width, tile.height, fc=look.color, ec="white", hatch=look.hatch, lw=0.4)
                ax.add_patch(box)
            ax.add_patch(Rectangle(frame[:2], frame.width, frame.height, fc="none", ec=INK, lw=1.6))
            nbytes = sum(parts.values())
            words = _fitting((f"{name}\n{nbytes / MB:.2f} MB, {100 * nbytes / total:.0f} %", name), frame)
            plate = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
            middle = (frame.x + frame.width / 2, frame.y + frame.height / 2)
            ax.text(*middle, words, ha="center", va="center", size=8, bbox=plate if words else None)
        ax.set(xlim=(0, _SIZE[0]), ylim=(0, _SIZE[1]))
        ax.set_axis_off()
        said = f"{total / 1e6:.1f} MB (10⁶ bytes) in {record.peak.phase or 'no phase'}; an area is its bytes"
        headline(ax, title, "; ".join(filter(None, (label, said))))
        legend_below(fig, [patch(c) for c in in_order({c for parts in held.values() for c in parts})], columns=4)
    return fig


def _fitting(texts: Sequence[str], frame: Tile) -> str:
    """The first of these texts that the frame has room for; "" if there is none."""
    for text in texts:
        lines = text.split("\n")
        if _LETTER * max(map(len, lines)) <= frame.width and _LINE * (len(lines) + 0.5) <= frame.height:
            return text
    return ""
