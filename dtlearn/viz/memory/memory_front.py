"""Memory against time: every way to make one step as a point, and the front of those that no other one beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..style import INK, MUTED, headline, legend_below, new_figure, style
from .categories import MB

OTHERWISE = "#D55E00"
# Size of the mark of a variant apart: so wide that a variant of the same cost and bytes is seen inside of it.
_APART: dict[str, Any] = {"marker": "D", "color": OTHERWISE, "mfc": "none", "ms": 11, "ls": "none"}
# Width of a letter, height of a line and half the width of a point, as shares of the axes.
_LETTER, _LINE, _POINT = 0.0095, 0.055, 0.011
_STEPS = 10  # places on an upright line that a name keeps clear of


def on_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Names of the points that none beats: no other has as little of both and less of one. By rising cost.

    Args:
        points: (cost, bytes) by name.
    """
    best = [
        name
        for name, (cost, nbytes) in points.items()
        if not any(c <= cost and b <= nbytes and (c, b) != (cost, nbytes) for c, b in points.values())
    ]
    return sorted(best, key=lambda name: points[name])


def memory_front(
    points: Mapping[str, tuple[float, float]],
    cost: str = "extra forward passes",
    title: str = "Memory against time",
    label: str = "",
    apart: Mapping[str, str] | None = None,
) -> Figure:
    """Draw (cost, bytes) of each variant; full points and the stairs through them are the front.

    Args:
        points: (cost, bytes) by the variant's name.
        cost: what the cost is, with its unit.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.
        apart: variants that pay in another way, with its name; they are drawn, and no others are compared with them.

    Raises:
        ValueError: no point, or one below 0, or all of them apart, or a variant apart that is none of them.
    """
    apart = dict(apart or {})
    compared = {name: point for name, point in points.items() if name not in apart}
    if not compared or set(apart) - set(points) or min(min(point) for point in points.values()) < 0:
        raise ValueError(
            f"a front needs a point or more, with costs and bytes of 0 or more; got {dict(points)}, apart {list(apart)}"
        )
    front = on_front(compared)
    costs, heights = ([point[axis] for point in points.values()] for axis in (0, 1))
    with style():
        fig = new_figure(height=4.4)
        ax = fig.add_subplot()
        xs, ys = zip(*((points[name][0], points[name][1] / MB) for name in front), strict=True)
        ax.step(
            xs, ys, where="post", color="#0072B2", lw=1.4, label="front: no other variant needs less of both", zorder=2
        )
        for name, (x, nbytes) in points.items():
            if name in apart:
                ax.plot(x, nbytes / MB, **_APART, zorder=4)
            else:
                ax.plot(
                    x, nbytes / MB, "o", ms=8, color="#0072B2", mfc="#0072B2" if name in front else "white", zorder=3
                )
        wide = max(costs) - min(costs) or 1
        letters = max(len(name) for name, (x, _) in points.items() if x > max(costs) - wide / 2)
        ax.set_xlim(min(costs) - 0.05 * wide, max(costs) + (0.08 + _LETTER * letters * 1.3) * wide)
        ax.set_ylim(0, 1.15 * max(heights) / MB or 1)
        _names(ax, points, front)
        ax.plot([], [], "o", color="#0072B2", ls="none", ms=8, label="a variant on it")
        beaten = "another variant needs no more of either, and less of one"
        ax.plot([], [], "o", color="#0072B2", mfc="white", ls="none", ms=8, label=beaten)
        for how in dict.fromkeys(apart.values()):
            ax.plot([], [], **_APART, label=f"costs something else: {how}")
        ax.set(xlabel=cost, ylabel="peak (MB = 10⁶ bytes)")
        ax.grid()
        headline(ax, title, label)
        legend_below(fig, ax.get_legend_handles_labels()[0], columns=2)
    return fig


def _free_place(x: float, y: float, width: float, taken: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Left end and height of a name: right of its point if there is room near it, else left of it, else farther off."""
    right, left = x + 1.4 * _POINT, x - 1.4 * _POINT - width
    near, far = (sorted((0.02 + 0.01 * step for step in range(-n, n)), key=abs) for n in (9, 90))
    for start, offsets in ((right, near), (left, near), (right, far)):
        beside = [at for first, end, at in taken if start < end and first < start + width]
        for offset in offsets if start > 0 else ():
            if all(abs(y + offset - at) >= _LINE for at in beside):
                return start, y + offset
    return right, y


def _names(ax: Axes, points: Mapping[str, tuple[float, float]], front: list[str]) -> None:
    """Write each name to the right of its point, as near as others allow; a line joins the two if they are apart."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    places = {name: ((x - left) / (right - left), (n / MB - low) / (high - low)) for name, (x, n) in points.items()}
    # Left end, right end and height of what is there, as shares of the axes: points, then names.
    taken = [(x - _POINT, x + _POINT, y) for x, y in places.values()]
    for (x, y), (to_x, to_y) in pairwise([places[name] for name in front]):  # the front's line, a step each
        upright = [y + (to_y - y) * at / _STEPS for at in range(1, _STEPS)]
        taken += [(x, to_x, y), *((to_x - _POINT / 2, to_x + _POINT / 2, at) for at in upright)]
    plate = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    for name, (x, y) in sorted(places.items(), key=lambda item: -item[1][1]):
        start, height = _free_place(x, y, _LETTER * len(name), taken)
        taken.append((start, start + _LETTER * len(name), height))
        color = INK if name in front else MUTED
        end, side = (start, "left") if start > x else (x - 1.4 * _POINT, "right")  # the end that is at the point
        options: dict[str, Any] = {"textcoords": "axes fraction", "ha": side, "va": "center", "size": 9, "zorder": 2}
        if abs(height - y) > 0.6 * _LINE:  # nearer to another point perhaps
            middle = (0.0 if side == "left" else 1.0, 0.5)
            options["arrowprops"] = {"arrowstyle": "-", "color": MUTED, "lw": 0.8, "relpos": middle, "shrinkB": 4}
        ax.annotate(name, (points[name][0], points[name][1] / MB), (end, height), color=color, bbox=plate, **options)
