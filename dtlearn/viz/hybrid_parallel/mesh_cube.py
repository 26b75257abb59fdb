"""The ranks of a mesh at the corners of a cube, and who is in a group with whom along each axis.

The innermost axis runs to the right, the next one into the depth, the third one upwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from ..style import GRID, INK, LANE, MUTED, headline_above, ink_on, new_figure, rank_color, style

if TYPE_CHECKING:
    from dtlearn.hybrid_parallel.layout import MeshLayout

MOST_RANKS = 32
_DEPTH = (0.42, 0.46)  # a step into the depth, as the eye sees it; a step to the right is (1, 0)
_LIFT = 0.62  # between the planes, above the depth of one
_POINTS = 17.0  # of a rank's circle
_LISTED, _LONGEST = 4, 4  # groups that are listed under a panel; ranks of one, two of which stand in a line
AxisOrAxes = str | tuple[str, ...]


class Spot(NamedTuple):
    """A point of the picture; a step to the right is 1 long."""

    x: float
    y: float


def mesh_cube(
    layout: MeshLayout, groups: Sequence[AxisOrAxes] = (), title: str = "Ranks on a mesh", label: str = ""
) -> Figure:
    """Draw the ranks where their coordinates put them; a panel for each kind of group.

    Args:
        layout: with three axes of several ranks at most.
        groups: an axis such as "tp", or several as ("tp", "pp"), for each panel; none: one panel of ranks alone.
        title: what the figure is about.
        label: printed under the title; "": the layout and how its ranks are numbered.

    Raises:
        ValueError: more axes or ranks than a cube shows, or an axis that there is not.
    """
    spots = places(layout)
    kinds = [_as_axes(group) for group in groups] or [()]
    for axis in {axis for kind in kinds for axis in kind}:
        layout.stride(axis)  # refuses an unknown one
    across = min(3, len(kinds))
    lines = -(-len(kinds) // across)
    wide, high = max(x for x, _ in spots), max(y for _, y in spots)
    margin = 0.3 if groups else 0.75  # for the names of the axes
    inches = min(9.0 / across, 4.6) * (high + margin + 0.3) / (wide + 2 * margin)
    with style():
        fig = new_figure(height=0.6 + lines * ((0.8 if groups else 0.1) + min(2.6, inches)))
        headline_above(fig, title, label or f"{layout}: numbered from the innermost axis outwards")
        axes = fig.subplots(lines, across, squeeze=False).flatten()
        for ax in axes[len(kinds) :]:
            ax.axis("off")
        for ax, kind in zip(axes, kinds, strict=False):
            _draw_panel(ax, layout, spots, kind)
            ax.set(xlim=(-margin, wide + margin), ylim=(-margin, high + 0.3))
    return fig


def mesh_words(layout: MeshLayout, groups: Sequence[AxisOrAxes] = ()) -> str:
    """The picture in words: the groups of each kind."""
    words = f"{layout.world_size} ranks at the corners of a cube, {layout}, numbered from the innermost axis outwards."
    for kind in map(_as_axes, groups):
        words += f" Groups along {' and '.join(kind)}: {_listed(layout.groups(*kind))}."
    return words


def places(layout: MeshLayout) -> list[Spot]:
    """Where each rank stands.

    Raises:
        ValueError: more than three axes with several ranks, or more than `MOST_RANKS`.
    """
    used = _used(layout)
    if len(used) > 3 or layout.world_size > MOST_RANKS:
        raise ValueError(
            f"a cube shows three axes and {MOST_RANKS} ranks at most; {layout} has {len(used)} axes and "
            f"{layout.world_size} ranks: take smaller axes of the same order"
        )
    steps = _steps(layout)
    found = []
    for rank in range(layout.world_size):
        at = [getattr(layout.coordinates(rank), axis) for axis in used]
        x, y = (sum(place * step[i] for place, step in zip(at, steps, strict=True)) for i in (0, 1))
        found.append(Spot(float(x), float(y)))
    return found


def _steps(layout: MeshLayout) -> list[tuple[float, float]]:
    """One step along each axis in use."""
    sizes = [layout.sizes[axis] for axis in _used(layout)] + [1, 1, 1]
    return [(1.0, 0.0), _DEPTH, (0.0, _DEPTH[1] * (sizes[1] - 1) + _LIFT)][: len(_used(layout))]


def _used(layout: MeshLayout) -> list[str]:
    return [axis for axis in layout.order if layout.sizes[axis] > 1]


def _as_axes(group: AxisOrAxes) -> tuple[str, ...]:
    return (group,) if isinstance(group, str) else tuple(group)


def _draw_panel(ax: Axes, layout: MeshLayout, spots: list[Spot], kind: tuple[str, ...]) -> None:
    ax.set_aspect("equal", "box")
    ax.axis("off")
    for axis in _used(layout):
        for ends in _edges(layout, axis):
            ax.plot(*_line(spots, ends), color=GRID, lw=1.2, zorder=1)
    found = layout.groups(*kind) if kind else [(rank,) for rank in range(layout.world_size)]
    for number, ranks in enumerate(found):
        _draw_group(ax, layout, spots, kind, ranks, rank_color(number))
    if not kind:
        _draw_axes(ax, layout)
        return
    count = f"{len(found)} group{'s' * (len(found) > 1)} of {len(found[0])}"
    ax.set_title(f"{' and '.join(kind)}: {count}", size=10, pad=3)
    listed = [_listed(found[at : at + 2]) for at in range(0, min(_LISTED, len(found)), 2)]
    listed = [_listed(found[:1])] if len(found[0]) > _LONGEST else listed
    left = len(found) - (1 if len(found[0]) > _LONGEST else _LISTED)
    words = "\n".join([*listed, *([f"and {left} more"] if left > 0 else [])])
    ax.text(0.5, 0.0, words, transform=ax.transAxes, ha="center", va="top", size=9)


def _draw_group(
    ax: Axes, layout: MeshLayout, spots: list[Spot], kind: tuple[str, ...], ranks: tuple[int, ...], color: str
) -> None:
    """Draw the ranks of a group in its colour, with a line between neighbours and a face where it has several axes."""
    for axis in kind:
        for ends in _edges(layout, axis):
            if ends[0] in ranks:
                ax.plot(*_line(spots, ends), color=color, lw=4.5, solid_capstyle="round", zorder=2, gid="group")
    if sum(layout.sizes[axis] > 1 for axis in kind) > 1:
        corners = _hull([spots[rank] for rank in ranks])
        ax.add_patch(Polygon(np.array(corners), closed=True, fc=color, ec=color, alpha=0.16, zorder=1.5))
    for rank in ranks:
        ax.plot(*spots[rank], "o", ms=_POINTS, mfc=color, mec="white", mew=1.2, zorder=3)
        ax.text(*spots[rank], str(rank), ha="center", va="center", size=9, weight="bold", color=ink_on(color), zorder=4)


def _draw_axes(ax: Axes, layout: MeshLayout) -> None:
    """Write the name of each axis at an arrow from rank 0's side."""
    for axis, (x, y) in zip(_used(layout), _steps(layout), strict=True):
        start = (
            (0.0, -0.42) if y == 0 else (-0.42, 0.0) if x == 0 else ((layout.sizes[_used(layout)[0]] - 1) + 0.3, -0.1)
        )
        end = (start[0] + 0.75 * x, start[1] + 0.75 * y)
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": MUTED, "lw": 1.2})
        away = {"ha": "right", "va": "center"} if x == 0 else {"ha": "left", "va": "center"}
        middle = (start[0] - 0.08, (start[1] + end[1]) / 2) if x == 0 else (end[0] + 0.06, end[1])
        plate = {"boxstyle": "round,pad=0.1", "facecolor": LANE, "edgecolor": "none"}
        ax.text(*middle, axis, size=9, weight="bold", color=INK, bbox=plate, **away)  # type: ignore[arg-type]


def _edges(layout: MeshLayout, axis: str) -> list[tuple[int, int]]:
    """Pairs of neighbours along an axis; the last rank is not joined to the first."""
    last = layout.sizes[axis] - 1
    ranks = [r for r in range(layout.world_size) if getattr(layout.coordinates(r), axis) < last]
    return [(rank, layout.neighbour(rank, axis)) for rank in ranks]


def _line(spots: list[Spot], ends: tuple[int, int]) -> tuple[list[float], list[float]]:
    return [spots[end].x for end in ends], [spots[end].y for end in ends]


def _hull(points: Sequence[Spot]) -> list[Spot]:
    """The corners of the smallest convex face around points, counter-clockwise (Andrew's monotone chain, 1979)."""

    def half(ordered: Sequence[Spot]) -> list[Spot]:
        kept: list[Spot] = []
        for p in ordered:
            while len(kept) > 1 and _turn(kept[-2], kept[-1], p) <= 1e-9:
                kept.pop()
            kept.append(p)
        return kept[:-1]

    ordered = sorted(points)
    return half(ordered) + half(ordered[::-1])


def _turn(a: Spot, b: Spot, c: Spot) -> float:
    return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x)


def _listed(found: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(f"({_short(ranks)})" for ranks in found)


def _short(ranks: tuple[int, ...]) -> str:
    """Ranks in words; if there are many, the first three and the last."""
    return ", ".join(map(str, ranks)) if len(ranks) <= 8 else f"{', '.join(map(str, ranks[:3]))}, ..., {ranks[-1]}"
