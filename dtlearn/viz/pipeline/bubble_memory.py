"""Every schedule as a point: its bubble over the peak of its live activations, computed, and measured if it was run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..style import INK, MUTED, headline, legend_below, new_figure, style

_COMPUTED: dict[str, Any] = {"marker": "o", "ms": 9, "color": "#0072B2", "mec": "white", "ls": "none"}
_MEASURED: dict[str, Any] = {"marker": "x", "ms": 9, "mew": 2, "color": "#D55E00", "ls": "none"}
# A line's height, a letter's width and half a point, as shares of the axes.
_LINE, _LETTER, _POINT = 0.06, 0.0098, 0.014

Plane = Mapping[str, tuple[float, float]]


def bubble_memory(
    computed: Plane,
    measured: Plane | None = None,
    title: str = "Bubble and memory of each schedule",
    label: str = "",
    memory: str = "most live activations of a rank (1 is one micro-batch of 1/p of the model)",
    bubble: str = "bubble: idle time / total time (%)",
) -> Figure:
    """Draw (peak memory, bubble) of each schedule; the lower left corner is the best place.

    A measured point has a name of its own if another schedule was measured with the same memory.

    Args:
        computed: by the schedule's name; the bubble as a share, 0.273 is 27.3 %.
        measured: the same of those that were run; may be empty.
        title: what the figure shows.
        label: where the numbers come from, printed under the title.
        memory: what the memory is, with its unit.
        bubble: which bubble, idle time / total time or idle time / useful time.

    Raises:
        ValueError: no schedule, a number below 0, or a measured schedule that was not computed.
    """
    measured = measured or {}
    every = [*computed.values(), *measured.values()]
    if not computed or set(measured) - set(computed) or min(min(point) for point in every) < 0:
        raise ValueError(
            f"a plane needs a schedule or more, with memory and bubble of 0 or more; got {dict(computed)}, measured "
            f"{dict(measured)}"
        )
    with style():
        fig = new_figure(height=4.4)
        ax = fig.add_subplot()
        for name, (held, share) in computed.items():
            if name in measured:
                seen = measured[name]
                ax.plot([held, seen[0]], [100 * share, 100 * seen[1]], color=MUTED, lw=0.8, zorder=2)
                ax.plot(seen[0], 100 * seen[1], **_MEASURED, zorder=4)
            ax.plot(held, 100 * share, **_COMPUTED, zorder=3)
        ax.set_xlim(0, 1.28 * max(held for held, _ in every) or 1)
        ax.set_ylim(0, 1.15 * 100 * max(share for _, share in every) or 1)
        _write_names(ax, computed, measured)
        ax.plot([], [], **_COMPUTED, label="computed")
        if measured:
            ax.plot([], [], **_MEASURED, label="measured")
        corner: dict[str, Any] = {"xycoords": "axes fraction", "size": 9, "color": MUTED}
        ax.annotate("better", (0.004, 0.01), (0.05, 0.1), arrowprops={"arrowstyle": "->", "color": MUTED}, **corner)
        ax.set(xlabel=memory, ylabel=bubble)
        ax.grid()
        headline(ax, title, label)
        legend_below(fig, ax.get_legend_handles_labels()[0])
    return fig


def _write_names(ax: Axes, computed: Plane, measured: Plane) -> None:
    """Write each name beside its point, in the nearest place where no other name and no point is."""
    right, top = ax.get_xlim()[1], ax.get_ylim()[1]
    points = [(held / right, 100 * share / top) for held, share in (*computed.values(), *measured.values())]
    for name, (held, share) in measured.items():  # what stands on the line from one to the other cannot be read
        (x, y), (to_x, to_y) = ((a / right, 100 * b / top) for a, b in (computed[name], (held, share)))
        steps = int(max(abs(to_x - x), abs(to_y - y)) / _LINE) + 1
        points += [(x + (to_x - x) * at / steps, y + (to_y - y) * at / steps) for at in range(1, steps)]
    taken = [(x - _POINT, x + _POINT, y) for x, y in points]
    column = Counter(round(held / right, 2) for held, _ in measured.values())
    names = [(name, *point) for name, point in computed.items()]
    names += [
        (f"{name}, measured", held, share)
        for name, (held, share) in measured.items()
        if column[round(held / right, 2)] > 1
    ]
    for name, held, share in sorted(names, key=lambda entry: entry[1:]):
        x, y, width = held / right, 100 * share / top, _LETTER * len(name)
        start, height = _free_place(x, y, width, taken)
        taken.append((start, start + width, height))
        options: dict[str, Any] = {"textcoords": "axes fraction", "va": "center", "size": 9, "color": INK, "zorder": 5}
        if abs(height - y) > 0.6 * _LINE:
            options["arrowprops"] = {"arrowstyle": "-", "color": MUTED, "lw": 0.8, "relpos": (0, 0.5), "shrinkB": 5}
        ax.annotate(name, (held, 100 * share), (start, height), **options)


def _free_place(x: float, y: float, width: float, taken: list[tuple[float, float, float]]) -> tuple[float, float]:
    """Left end and height of a name: right of its point, or left of it, as near as what is there allows."""
    for distance in sorted((0.01 * step for step in range(-40, 41)), key=abs):
        for start in (x + 1.5 * _POINT, x - 1.5 * _POINT - width):
            height = y + distance
            inside = 0 <= start and start + width <= 1 and _LINE / 2 <= height <= 1 - _LINE / 2
            beside = [at for first, end, at in taken if start < end and first < start + width]
            if inside and all(abs(height - at) >= 0.9 * _LINE for at in beside):
                return start, height
    return x + 1.5 * _POINT, y
