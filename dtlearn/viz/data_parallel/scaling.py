"""What N ranks are worth: samples per second and efficiency against N, predicted and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from ..style import INK, MUTED, headline, legend_below, new_figure, style

if TYPE_CHECKING:
    from dtlearn.data_parallel.overlap_model import Scale

_LOOKS = (("#0072B2", "o", "-"), ("#D55E00", "s", (0, (5, 1.5))), ("#009E73", "^", (0, (1.5, 1.2))))
_CROWDED = "#fdeceb"  # the warning colour, faint
_FEW = 8  # up to so many ranks the axes are linear: powers of two would leave two ticks


def scaling(
    predicted: Mapping[str, Sequence[Scale]],
    measured: Mapping[str, Sequence[Scale]] | None = None,
    *,
    cores: int | None = None,
    title: str = "Throughput with N ranks",
    label: str = "model",
) -> Figure:
    """Draw throughput and efficiency over N: lines for predictions, points for measurements.

    Where ranks are more than the cores of the machine that was measured, the picture says so: their times tell of
    ranks that take turns, not of communication.

    Args:
        predicted: by name, such as "1 Gb/s": see `overlap.predict`. Each begins with N = 1, which efficiency compares
            with.
        measured: the same for measured steps, under the same names or others.
        cores: of the machine of the measurements; None: enough.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: nothing to draw, more than three names, or numbers of ranks that do not begin with 1 and rise.
    """
    points = dict(measured or {})
    names = list(dict.fromkeys([*predicted, *points]))
    if not 1 <= len(names) <= len(_LOOKS):
        raise ValueError(f"scaling draws one to {len(_LOOKS)} names, got {len(names)}: {names}")
    for name, scales in [*predicted.items(), *points.items()]:
        ranks = [scale.ranks for scale in scales]
        if ranks[:1] != [1] or ranks != sorted(set(ranks)):
            raise ValueError(f"the numbers of ranks of {name!r} must begin with 1 and rise, got {ranks}")
    everyone = sorted({s.ranks for scales in [*predicted.values(), *points.values()] for s in scales})
    crowded = cores is not None and any(s.ranks > cores for scales in points.values() for s in scales)
    with style():
        fig = new_figure(height=3.9)
        left, right = fig.subplots(1, 2)
        for ax in (left, right):
            for name, look in zip(names, _LOOKS, strict=False):
                _draw(ax, predicted.get(name, ()), points.get(name, ()), look, cores, share=ax is right)
            _axis(ax, everyone, cores if crowded else None)
        alone = (predicted.get(names[0]) or points[names[0]])[0].throughput
        left.plot(everyone, [n * alone for n in everyone], color=MUTED, linestyle=(0, (4, 2)), linewidth=1, zorder=1)
        if everyone[-1] <= _FEW:
            left.set_ylim(bottom=0)
            left.yaxis.set_major_locator(MaxNLocator(5))
        else:
            left.set_yscale("log", base=2)
            left.minorticks_off()
        left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        left.set_ylabel("samples per second")
        right.axhline(1, color=MUTED, linestyle=(0, (4, 2)), linewidth=1, zorder=1)
        right.set_ylim(0, 1.08)
        right.yaxis.set_major_formatter(PercentFormatter(1.0))
        right.set_ylabel("efficiency")
        headline(left, title, label, corner=right)
        legend_below(fig, _legend(names, predicted, points, crowded), columns=4)
    return fig


def _draw(
    ax: Axes,
    predicted: Sequence[Scale],
    measured: Sequence[Scale],
    look: tuple[str, str, object],
    cores: int | None,
    share: bool,
) -> None:
    color, marker, dashes = look
    if predicted:
        ax.plot([s.ranks for s in predicted], _values(predicted, share), color=color, linestyle=dashes, zorder=2)
    for scale, value in zip(measured, _values(measured, share), strict=True):
        fill = "white" if cores is not None and scale.ranks > cores else color
        ax.plot([scale.ranks], [value], marker, color=color, markerfacecolor=fill, markersize=7, zorder=3)


def _values(scales: Sequence[Scale], share: bool) -> list[float]:
    # The share is `overlap.efficiency`, which is not imported: its package loads torch.distributed.
    alone = scales[0].throughput if scales and share else 0.0
    return [s.throughput / (s.ranks * alone) if share else s.throughput for s in scales]


def _axis(ax: Axes, ranks: Sequence[int], cores: int | None) -> None:
    few = ranks[-1] <= _FEW
    if not few:
        ax.set_xscale("log", base=2)
    ax.set_xticks(ranks, [str(n) for n in ranks])
    ax.minorticks_off()
    left, right = (0.8, ranks[-1] + 0.2) if few else (ranks[0] * 0.88, ranks[-1] * 1.14)
    ax.set_xlim(left, right)
    ax.set_xlabel("number of ranks N")
    ax.grid()
    if cores is not None:
        ax.axvspan(cores + 0.5 if few else cores * 2**0.5, right, color=_CROWDED, linewidth=0, zorder=0)


def _legend(
    names: Sequence[str],
    predicted: Mapping[str, Sequence[Scale]],
    measured: Mapping[str, Sequence[Scale]],
    crowded: bool,
) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = []
    for name, (color, marker, dashes) in zip(names, _LOOKS, strict=False):
        if name in predicted:
            handles.append(Line2D([], [], color=color, linestyle=dashes, label=f"{name}, predicted"))  # type: ignore[arg-type]
        if name in measured:
            handles.append(Line2D([], [], color=color, marker=marker, linewidth=0, label=f"{name}, measured"))
    handles.append(Line2D([], [], color=MUTED, linestyle=(0, (4, 2)), linewidth=1, label="ideal: N times one rank"))
    if crowded:
        hollow = Line2D([], [], color=INK, marker="o", markerfacecolor="white", linewidth=0, label="ranks share cores")
        handles += [hollow, Patch(facecolor=_CROWDED, label="more ranks than cores")]
    return handles
