"""A lane for each rank and a box for each action: what the computed grid and the recorded Gantt chart share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ..style import INK, LANE, MUTED, WIDTH, headline_above, legend_below, new_figure, style
from .bars import Bar, idle, stages_by_rank
from .looks import OP_LOOKS, face, op_patches

_AXES_INCHES = WIDTH * 0.88
_LETTER = 0.0088  # inches of a letter's width for each point of its size
_SIZES = (8, 7, 6, 5)  # of the boxes' text
_MOST = 0.9  # of the boxes have room for it; the others stay empty
_BOX = 0.82  # of a lane's height
EMULATED = "emulated stage times"


def lanes_figure(panels: Mapping[str, Sequence[Bar]], title: str, label: str, axis: str, length: str) -> Figure:
    """Draw panels below each other on one time axis.

    Args:
        panels: bars by name, from time 0 on.
        title: over the figure.
        label: under the title.
        axis: what the time axis says.
        length: the makespan in words, a format with one place ("{:.0f} ms").

    Raises:
        ValueError: no bar in a panel, or bars without any length.
    """
    right = max((bar.end for bars in panels.values() for bar in bars), default=0.0)
    if right <= 0 or not all(panels.values()):
        raise ValueError(f"every panel needs an action that takes time; got {list(panels)}")
    ranks = {name: max(bar.rank for bar in bars) + 1 for name, bars in panels.items()}
    height = 0.42 if max(ranks.values()) <= 4 else 0.32
    with style():
        fig = new_figure(height=1.45 + sum(height * n + 0.35 for n in ranks.values()))
        shares = {"height_ratios": [n + 0.15 for n in ranks.values()]}
        plain = {name: _is_plain(bars) for name, bars in panels.items()}
        text, size = _text_of_all([(bar, plain[name]) for name, bars in panels.items() for bar in bars], right)
        axes = fig.subplots(len(panels), 1, sharex=True, squeeze=False, gridspec_kw=shares)[:, 0]
        for ax, (name, bars) in zip(axes, panels.items(), strict=True):
            _draw_panel(ax, bars, ranks[name], right, plain[name])
            _write(ax, [(bar, text(bar, plain[name])) for bar in bars], size, right)
            words = idle_words(bars, ranks[name], length)
            ax.set_title(f"{name}: {words}" if name else words, loc="left", size=9, weight="normal", pad=3)
        axes[-1].set_xlabel(axis)
        headline_above(fig, title, label)
        if EMULATED in label.lower():
            _badge(fig)
        several = any(len(stages) > 1 for bars in panels.values() for stages in stages_by_rank(bars).values())
        numbers = [Patch(alpha=0, label="numbers: micro-batches")] if text is _number else []
        legend_below(fig, [*op_patches({bar.op for bars in panels.values() for bar in bars}, several), *numbers])
    return fig


def idle_words(bars: Sequence[Bar], num_ranks: int, length: str) -> str:
    """The length of a step and its bubble, in both conventions, in words."""
    spare = idle(bars, num_ranks)
    return (
        f"{length.format(spare.makespan)}; bubble: idle / useful = {100 * spare.of_useful:.1f} %, "
        f"idle / total = {100 * spare.of_total:.1f} %"
    )


def _badge(fig: Figure) -> None:
    box = {"boxstyle": "round,pad=0.3", "facecolor": "#fff4d6", "edgecolor": "#8a6d00"}
    fig.text(0.985, 0.985, EMULATED, ha="right", va="top", size=9, bbox=box).set_in_layout(False)


def _is_plain(bars: Sequence[Bar]) -> bool:
    """Whether every rank has the one stage with its own number, which a box then need not repeat."""
    return all(held == [rank] for rank, held in stages_by_rank(bars).items())


def _draw_panel(ax: Axes, bars: Sequence[Bar], num_ranks: int, right: float, plain: bool) -> None:
    stages = stages_by_rank(bars)
    for rank in range(num_ranks):
        ax.add_patch(Rectangle((0, rank - _BOX / 2), right, _BOX, fc=LANE, ec="none", zorder=0))
    for bar in bars:
        width = bar.end - bar.start
        edge = 0.8 if width > 0.004 * right else 0
        color, hatch = face(bar.op, stages[bar.rank].index(bar.stage)), OP_LOOKS[bar.op].hatch
        corner = (bar.start, bar.rank - _BOX / 2)
        box = Rectangle(corner, width, _BOX, fc=color, hatch=hatch, ec="white", lw=edge, gid=_name(bar))
        ax.add_artist(box)  # `add_patch` would fit the limits to each box, half of all the work; they are set below
    ax.set_xlim(0, right)
    ax.set_ylim(num_ranks - 0.5, -0.5)
    ax.set_yticks(range(num_ranks), [_lane_words(rank, stages.get(rank, []), plain) for rank in range(num_ranks)])
    ax.tick_params(axis="y", length=0)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.grid(axis="x", color=MUTED, alpha=0.25)


def _name(bar: Bar) -> str:
    return f"{bar.stage}{bar.op}{bar.microbatch}"


def _lane_words(rank: int, held: Sequence[int], plain: bool) -> str:
    if plain or not held:
        return f"rank {rank}"
    return f"rank {rank}: {'stage' if len(held) == 1 else 'stages'} {', '.join(map(str, held))}"


def _text_of_all(bars: Sequence[tuple[Bar, bool]], right: float) -> tuple[Callable[[Bar, bool], str], float]:
    """One form and one size for the texts of all boxes, as other sizes would look like emphasis; the fullest that fits.

    Args:
        bars: each with whether its panel is plain.
        right: end of the time axis.
    """
    for form in (_short_name, _number):
        for size in _SIZES:
            fits = sum(_has_room(bar, form(bar, plain), size, right) for bar, plain in bars)
            if fits >= _MOST * len(bars):
                return form, size
    return lambda bar, plain: "", _SIZES[-1]


def _write(ax: Axes, texts: Sequence[tuple[Bar, str]], size: float, right: float) -> None:
    stages = stages_by_rank([bar for bar, _ in texts])
    for bar, text in texts:
        if text and _has_room(bar, text, size, right):
            color = face(bar.op, stages[bar.rank].index(bar.stage))
            plate = {"boxstyle": "square,pad=0.08", "fc": color, "ec": "none", "alpha": 0.9}
            middle = ((bar.start + bar.end) / 2, bar.rank)
            ax.text(*middle, text, ha="center", va="center", size=size, color=INK, bbox=plate, clip_on=True)


def _short_name(bar: Bar, plain: bool) -> str:
    return f"{bar.op}{bar.microbatch}" if plain else _name(bar)


def _number(bar: Bar, plain: bool) -> str:
    return str(bar.microbatch)


def _has_room(bar: Bar, text: str, size: float, right: float) -> bool:
    return len(text) * size * _LETTER + 0.015 <= (bar.end - bar.start) / right * _AXES_INCHES
