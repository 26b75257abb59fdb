"""Memory and time of planned layouts, a bar each: what fills the chip, and what a step spends its time on."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..memory.categories import Look
from ..style import ALARM, INK, MUTED, new_figure, style
from .looks import MEMORY, TIME, look_patch

if TYPE_CHECKING:
    from dtlearn.planner import LayoutPlan

_GIB = 2**30
_VISIBLE = 0.004  # of the longest bar: what is less has no place in the legend
_LINE = 125  # letters of a line of words below the bars
_LEGEND_LINES = 5
_LEFT, _WIDTHS = (0.322, 0.69), (0.315, 0.3)  # of the two axes, as shares of the figure
_DASHES: Any = (0, (5, 2))
_LETTER = 0.026  # width of a letter, as a share of the axes
_LABEL: dict[str, Any] = {"size": 9, "color": MUTED}
_PLATE = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}


def plan_bars(
    plans: Sequence[LayoutPlan], top: int = 5, title: str = "", label: str = "", words: Sequence[str] = ()
) -> Figure:
    """Draw the first layouts: bytes of the fullest rank beside the chip's memory, and seconds of a step.

    Args:
        plans: of one model on one kind of chip, such as `planner.search_layouts` returns; others than fit may be there.
        top: how many are drawn.
        title: what the figure is about; "": the first layout.
        label: printed under the title; "": model, cluster and batch.
        words: sentences that stand below the bars.

    Raises:
        ValueError: no plan, or plans on several kinds of chips.
    """
    plans = list(plans[:top])
    chips = {plan.run.cluster.chip.name for plan in plans}
    if len(chips) != 1:
        raise ValueError(f"one plan or more on one kind of chip is needed, got {len(plans)} on {sorted(chips)}")
    lines = [line for sentence in words for line in textwrap.wrap(sentence, _LINE)]
    first, capacity = plans[0].run, plans[0].memory.capacity / _GIB
    below = 0.18 * len(lines) + 0.1  # inches: the words, the legends, the numbers and name of the axis
    bottom, bars = below + 0.185 * _LEGEND_LINES + 0.55, 0.5 * len(plans)
    with style():
        fig = new_figure(height=bottom + bars + 0.65)
        fig.set_layout_engine("none")  # under a slider the bars stay where they are
        height = fig.get_figheight()
        words_above = {title or f"{first.model.name}: {first.axes}": 0.05, label or run_words(plans[0]): 0.29}
        for (text, inches), looks in zip(words_above.items(), ({"size": 12, "weight": "bold"}, _LABEL), strict=True):
            fig.text(0.01, 1 - inches / height, text, va="top", **looks)
        of_memory = fig.add_axes((_LEFT[0], bottom / height, _WIDTHS[0], bars / height))
        of_time = fig.add_axes((_LEFT[1], bottom / height, _WIDTHS[1], bars / height), sharey=of_memory)
        corners = [(left, (bottom - 0.55) / height) for left in _LEFT]
        of_memory.axvline(capacity, color=ALARM, lw=1.5, ls=_DASHES, zorder=3)
        seen = _draw_bars(of_memory, [plan.memory.rows for plan in plans], MEMORY, _GIB, "GiB", capacity)
        line = Line2D([], [], color=ALARM, lw=1.5, ls=_DASHES, label=f"{first.cluster.chip.name}: {capacity:.1f} GiB")
        _legend(fig, corners[0], [*seen, line])
        _legend(fig, corners[1], _draw_bars(of_time, [plan.step.rows for plan in plans], TIME, 1.0, "s"))
        of_memory.set_xlabel("memory of the fullest rank (GiB = 2³⁰ bytes)")
        of_time.set_xlabel("time of a step (s)")
        of_memory.set_yticks(range(len(plans)), [layout_name(plan) for plan in plans], size=9)
        of_memory.set_ylim(len(plans) - 0.5, -0.55)
        of_time.tick_params(axis="y", length=0, labelleft=False)
        of_memory.tick_params(axis="y", length=0)
        for total, plan in zip(of_memory.texts, plans, strict=True):
            total.set_color(INK if plan.memory.fits else ALARM)
        for number, sentence in enumerate(lines):
            fig.text(0.01, (below - 0.18 * (number + 0.6)) / height, sentence, size=9, va="center")
    return fig


def plan_words(plans: Sequence[LayoutPlan], top: int = 5) -> str:
    """The picture in words."""
    first = plans[0]
    bars = "; ".join(
        f"{plan.run.axes}, {plan.step.total:.3g} s and {plan.memory.total / _GIB:.1f} GiB" for plan in plans[:top]
    )
    largest = max(first.step.rows, key=lambda name: first.step.rows[name])
    return (
        f"Stacked bars of memory and of time for {run_words(first)}: {bars}. The first one's time is mostly {largest}; "
        f"a line shows the {first.memory.capacity / _GIB:.1f} GiB of a chip."
    )


@lru_cache(maxsize=64)
def best_layout(
    model: str = "BLOOM 176B",
    gpus: int = 384,
    network: float = 25.0,
    batch: int = 2048,
    gpu: str = "A100-80GB",
    length: int = 0,
) -> Figure:
    """Search the layouts of a model on a cluster, and draw the fastest that fit, with why the runner-up loses.

    Made for the sliders of a notebook: figures are kept, so the way back costs nothing.

    Args:
        model: a name that `planner.find_model` knows.
        gpus: in nodes of 8.
        network: GB/s of each GPU to other nodes, in one direction.
        batch: sequences of a step.
        gpu: a name that `planner.find_accelerator` knows.
        length: tokens of a sequence; 0: the model's context.

    Raises:
        ValueError: nothing fits or divides; the message says what would help.
    """
    from dtlearn.planner import find_model, parse_cluster, search_layouts, what_would_change_it, why_it_loses

    cluster = parse_cluster(f"{gpus}x{gpu}", network * 1e9)
    plans = search_layouts(find_model(model), cluster, batch, length)
    words = ["No other layout fits."]
    if len(plans) > 1:
        words = [f"Second: {why_it_loses(plans[0], plans[1])}.", _sentence(what_would_change_it(plans[0], plans[1]))]
    title = f"Fastest layout that fits: {plans[0].run.axes}"
    label = f"{run_words(plans[0])}; {network:g} GB/s a GPU between nodes; by the planner's arithmetic"
    return plan_bars(plans, top=4, title=title, label=label, words=words)


def run_words(plan: LayoutPlan) -> str:
    """What is trained on what, in a few words."""
    run = plan.run
    on = f"{run.model.name} on {run.cluster.size:,} x {run.cluster.chip.name}"
    return f"{on}, batch of {run.batch:,} x {run.length:,} tokens"


def layout_name(plan: LayoutPlan) -> str:
    """A layout in two lines: its axes; micro-batch, ZeRO stage and recomputation."""
    run = plan.run
    again = {"none": "no recomputation", "full": "full recomp.", "selective": "selective recomp.", "ops": "ops recomp."}
    return f"{run.axes}\nmicro-batch {run.microbatch}, ZeRO {run.zero_stage}, {again[run.recompute]}"


def _sentence(words: str) -> str:
    """A sentence about what would change the order; if it lists everything that would not, its first part."""
    head, tried, _ = words.partition(" changes tried would put it first")
    return f"{head[0].upper()}{head[1:]}{tried}." if tried else f"{words[0].upper()}{words[1:]}."


def _draw_bars(
    ax: Axes,
    bars: Sequence[Mapping[str, float]],
    looks: Mapping[str, Look],
    size: float,
    unit: str,
    line: float = 0.0,
) -> list[Patch]:
    """Stack each bar by its rows, with its sum behind it, past the line if that would go through it.

    Returns:
        Legend entries of the rows that can be seen.
    """
    longest = max(sum(parts.values()) for parts in bars) / size or 1.0
    right = 1.24 * max(longest, line / 1.06)
    seen = [name for name in looks if max(parts.get(name, 0.0) for parts in bars) / size > _VISIBLE * longest]
    for row, parts in enumerate(bars):
        at = 0.0
        for name in looks:
            width = parts.get(name, 0.0) / size
            if width:
                ax.barh(row, width, 0.62, at, color=looks[name].color, hatch=looks[name].hatch, ec="white", lw=0.4)
            at += width
        words = f"{at:.{1 if at >= 10 else 2}f} {unit}" if at >= 1 else f"{at:.3g} {unit}"
        start = line if at <= line <= at + _LETTER * len(words) * right else at
        ax.text(start + 0.015 * right, row, words, va="center", size=9, zorder=4, bbox=_PLATE)
    ax.set_xlim(0, right)
    return [look_patch(name, looks[name]) for name in seen]


def _legend(fig: Figure, corner: tuple[float, float], handles: Sequence[Artist]) -> None:
    columns = 2 if len(handles) <= 2 * _LEGEND_LINES else 3
    fig.legend(
        handles=list(handles), loc="upper left", bbox_to_anchor=corner, ncols=columns, borderaxespad=0, handlelength=2,
        borderpad=0, columnspacing=1.2,
    )  # fmt: skip
