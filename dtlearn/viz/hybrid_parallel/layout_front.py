"""Memory against time of all layouts of a search: those that fit, those that do not, and the front that none beats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ..style import ALARM, INK, LINE_LOOKS, headline, legend_below, new_figure, style
from .plan_bars import run_words

if TYPE_CHECKING:
    from dtlearn.planner import LayoutPlan

_GIB = 2**30
_SLOWEST, _LARGEST = 4.0, 6.0  # of the best time and of the chip's memory: what is drawn
_ROOM, _APART = 0.3, 0.12  # left of the fastest, and between two names, as shares of the axes
_WAYS = ("none", "selective", "full", "ops")
_PLATE = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.9}


def front_of(plans: Sequence[LayoutPlan]) -> list[LayoutPlan]:
    """The layouts that none beats, from the fastest to the smallest: no other is as fast and needs less memory."""
    front: list[LayoutPlan] = []
    for plan in sorted(plans, key=lambda plan: (plan.step.total, plan.memory.total)):
        if not front or plan.memory.total < front[-1].memory.total:
            front.append(plan)
    return front


def layout_front(plans: Sequence[LayoutPlan], title: str = "", label: str = "") -> Figure:
    """Draw (seconds of a step, bytes of the fullest rank) of each layout.

    Args:
        plans: of one model on one cluster, such as `planner.planned_layouts` returns.
        title: what the figure is about; "": the fastest layout that fits.
        label: printed under the title; "": model, cluster and batch.

    Raises:
        ValueError: no layout, or layouts on several kinds of chips.
    """
    chips = {plan.run.cluster.chip.name for plan in plans}
    if len(chips) != 1:
        raise ValueError(f"layouts on one kind of chip are needed, got {len(plans)} on {sorted(chips)}")
    fitting = [plan for plan in plans if plan.memory.fits]
    front, capacity = front_of(fitting), plans[0].memory.capacity / _GIB
    with style():
        fig = new_figure(height=4.9)
        ax = fig.add_subplot()
        handles = _draw_points(ax, plans)
        ax.axhline(capacity, color=ALARM, lw=1.5, ls=(0, (5, 2)), zorder=2)
        handles.append(Line2D([], [], color=ALARM, lw=1.5, ls=(0, (5, 2)), label=f"a chip has {capacity:.1f} GiB"))
        if front:
            ax.step(*_places(front), where="post", color=INK, lw=1.4, zorder=4)
            ax.plot(*_places(front), "o", ms=10, mfc="none", mec=INK, mew=1.2, zorder=5)
            handles.append(
                Line2D([], [], color=INK, lw=1.4, marker="o", ms=8, mfc="none", label="front: none beats them")
            )
        _axes(ax, plans, capacity)
        says = f"fastest that fits: {front[0].run.axes}" if front else "no layout fits"
        headline(
            ax, title or f"{len(plans):,} layouts, {len(fitting):,} of them fit; {says}", label or run_words(plans[0])
        )
        _name(ax, front)
        legend_below(fig, handles, columns=4)
    return fig


def front_words(plans: Sequence[LayoutPlan]) -> str:
    """The picture in words."""
    fitting = [plan for plan in plans if plan.memory.fits]
    front = "; ".join(_words(plan) for plan in named_on_front(front_of(fitting), 1.5)) or "empty, as none fits"
    return (
        f"A point for each of {len(plans)} layouts of {run_words(plans[0])}: time of a step against memory. "
        f"{len(fitting)} lie below the line of {plans[0].memory.capacity / _GIB:.1f} GiB. The front, from the fastest "
        f"to the smallest, some of its points: {front}."
    )


def _draw_points(ax: Axes, plans: Sequence[LayoutPlan]) -> list[Line2D]:
    """Draw a mark for each plan, by its way to recompute, faint and open if it does not fit; return legend entries."""
    used = [way for way in _WAYS if any(plan.run.recompute == way for plan in plans)]
    looks = {way: (color, marker) for way, (color, _, marker) in zip(used, LINE_LOOKS, strict=False)}
    for way in reversed(used):  # with fused attention selective recomputation changes nothing: "none" on top says so
        color, marker = looks[way]
        for fits, face, edge in ((False, "none", _pale(color)), (True, color, color)):
            some = [plan for plan in plans if plan.run.recompute == way and plan.memory.fits == fits]
            ax.plot(*_places(some), marker, ms=5, ls="none", mfc=face, mec=edge, mew=0.8, zorder=3 if fits else 1)
    names = {way: "no recomputation" if way == "none" else f"{way} recomputation" for way in used}
    handles = [Line2D([], [], color=c, marker=m, ls="none", ms=6, label=names[way]) for way, (c, m) in looks.items()]
    open_mark = Line2D([], [], mfc="none", mec=_pale(INK), marker="o", ls="none", ms=6, label="open: does not fit")
    return [*handles, open_mark] if not all(plan.memory.fits for plan in plans) else handles


def _pale(color: str) -> str:
    red, green, blue = (0.6 + 0.4 * part for part in to_rgb(color))
    return to_hex((red, green, blue))


def _places(plans: Sequence[LayoutPlan]) -> tuple[list[float], list[float]]:
    return [plan.step.total for plan in plans], [plan.memory.total / _GIB for plan in plans]


def _axes(ax: Axes, plans: Sequence[LayoutPlan], capacity: float) -> None:
    """Make both axes logarithmic, with room for names on the left; cut off and count what is far slower or larger."""
    times, sizes = _places(plans)
    right, top = min(1.1 * max(times), _SLOWEST * min(times)), min(1.2 * max(*sizes, capacity), _LARGEST * capacity)
    hidden = sum(time > right or size > top for time, size in zip(times, sizes, strict=True))
    more = f"; {hidden} layouts beyond are not shown" if hidden else ""
    ax.set(xscale="log", yscale="log", xlabel=f"time of a step (s){more}", ylabel="memory of the fullest rank (GiB)")
    ax.set_xlim(min(times) * (min(times) / right) ** (_ROOM / (1 - _ROOM)), right)
    ax.set_ylim(0.55 * min(*sizes, capacity), top)
    for axis, subs in ((ax.xaxis, (1, 1.5, 2, 3, 4, 5, 6, 8)), (ax.yaxis, (1, 2, 5))):
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())
    ax.grid()


def named_on_front(front: Sequence[LayoutPlan], apart: float) -> list[LayoutPlan]:
    """The fastest layout, and those of the front with room for a name: each needs `apart` times less than the last one.

    Args:
        front: from the fastest to the smallest.
        apart: a factor above 1.
    """
    chosen = list(front[:1])
    for plan in front[1:]:
        if plan.memory.total * apart <= chosen[-1].memory.total:
            chosen.append(plan)
    return chosen


def _name(ax: Axes, front: Sequence[LayoutPlan]) -> None:
    """Write names to the left of their points, where there are no others: a point there would beat them."""
    low, high = ax.get_ylim()
    for number, plan in enumerate(named_on_front(front, (high / low) ** _APART)):
        words = f"{plan.run.axes}\n{plan.step.total:.3g} s, {plan.memory.total / _GIB:.1f} GiB"
        ax.annotate(
            words, (plan.step.total, plan.memory.total / _GIB), (-9, -1), textcoords="offset points", ha="right",
            va="top", size=9, weight="bold" if number == 0 else "normal", bbox=_PLATE, zorder=6,
        )  # fmt: skip


def _words(plan: LayoutPlan) -> str:
    return f"{plan.run.axes}, ZeRO {plan.run.zero_stage}: {plan.step.total:.3g} s, {plan.memory.total / _GIB:.1f} GiB"
