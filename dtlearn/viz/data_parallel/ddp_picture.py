"""Data parallelism in one picture: from the model's layers to buckets, and from buckets to the link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dtlearn.runtime.record.record import Record
from dtlearn.runtime.record.training_steps import arrival, recorded_steps

from ..phase_strip import phase_colors
from ..style import ALARM, INK, LANE, MUTED, headline, new_figure, op_style, style
from ..units import format_bytes
from ..waits import data_starts

if TYPE_CHECKING:
    from dtlearn.sharing.gradient_buckets import Bucket

# Left edge and width of each column; the picture is 10 wide.
_LAYERS, _BUCKETS, _BACKWARD, _LINK = (0.0, 2.2), (3.2, 1.6), (6.3, 0.8), (8.3, 0.8)
_SHADES = ("#dfe3e8", "#f3f5f7")  # of neighbouring buckets
_GAP = 0.008


def ddp_picture(
    record: Record, plan: Sequence[Bucket], names: Sequence[str], nbytes: Sequence[int], title: str
) -> Figure:
    """Draw one recorded step of rank 0: layers, the bucket of each, and when each bucket was on the link.

    On the left, from top to bottom, the order in which backward computes gradients; on the right time runs downwards.
    An arrow goes from a bucket to the moment at which it was launched, and from there to its all-reduce. That one ends
    when the rank noticed it, later than on the link if its cores were busy; the next is drawn from there on.

    Args:
        record: of one step, with phases.
        plan: its buckets.
        names: of the parameters, in the order of the model.
        nbytes: of their gradients.
        title: what the figure is about.

    Raises:
        ValueError: the step has another number of all-reduces than the plan has buckets.
    """
    step = next(iter(recorded_steps(record, 0)), None)
    if step is None or len(step.buckets) != len(plan):
        raise ValueError(f"the record must hold a step with {len(plan)} all-reduces, one for each bucket")
    backward = next(span for span in step.spans if span.phase == "backward")
    begin, starts, free = backward.start_ns, data_starts(record), 0
    computed = min([backward.end_ns or step.end, *(e.wait_ns for e in step.buckets if e.wait_ns is not None)])
    times = []  # of each bucket: launched, on the link from, to; in ns since backward began
    for event in step.buckets:
        moves, end = max(starts[event.rank, event.seq] or event.start_ns, free), arrival(event) or step.end
        times.append((event.start_ns - begin, min(moves, end) - begin, end - begin))
        free = end
    total = max(computed - begin, *(end for _, _, end in times))
    with style():
        fig = new_figure(height=4.6)
        ax = fig.add_subplot()
        colors = phase_colors(record)
        _column(ax, _BACKWARD, 0, (computed - begin) / total, colors["backward"], "")
        middles = _model(ax, plan, names, nbytes)
        for bucket, middle, (launched, moves, end) in zip(plan, middles, times, strict=True):
            _arrow(ax, (sum(_BUCKETS), middle), (_BACKWARD[0], launched / total))
            _arrow(ax, (sum(_BACKWARD), launched / total), (_LINK[0], moves / total))
            ax.plot([_BACKWARD[0], sum(_BACKWARD)], [launched / total] * 2, color=INK, linewidth=1)
            _column(ax, _LINK, moves / total, end / total, op_style("all_reduce").color, str(bucket.index))
        if total > computed - begin:
            rest = (computed - begin) / total
            ax.plot([sum(_LINK) + 0.12] * 2, [rest, 1], color=ALARM, linewidth=3, solid_capstyle="butt")
            words = f"exposed:\n{(total - computed + begin) / 1e6:.0f} ms"
            ax.text(sum(_LINK) + 0.25, (rest + 1) / 2, words, va="center", size=9, color=ALARM)
        for at, words in (
            (_LAYERS, "1. layers, in the\norder of backward"),
            (_BUCKETS, "2. buckets: gradients\nthat are sent together"),
            (_BACKWARD, "3. backward,\nwith launches"),
            (_LINK, "4. all-reduces, each\nuntil rank 0 saw its end"),
        ):
            ax.text(at[0] + at[1] / 2, -0.03, words, ha="center", va="bottom", size=9, weight="bold")
        for k in range(5):
            free_of_arrows = {"facecolor": "white", "linewidth": 0, "pad": 1}
            words = f"{total * k / 4 / 1e6:.0f} ms"
            ax.text(6.2, k / 4, words, ha="right", va="center", size=8, color=MUTED, bbox=free_of_arrows)
        ax.set_xlim(-0.05, 10.2)
        ax.set_ylim(1.02, -0.16)
        ax.set_axis_off()
        headline(ax, title, f"run: {record.label}" if record.label else "")
    return fig


def _model(ax: Axes, plan: Sequence[Bucket], names: Sequence[str], nbytes: Sequence[int]) -> list[float]:
    """Layers and buckets; returns the middle of each bucket."""
    layers = [(bucket.index, *layer) for bucket in plan for layer in _layers(bucket, names, nbytes)]
    height, middles = 1 / len(layers), []
    for place, (index, name, size) in enumerate(layers):
        _column(ax, _LAYERS, place * height, (place + 1) * height, _SHADES[index % 2], f"{name}  {format_bytes(size)}")
    for bucket in plan:
        places = [place for place, (index, *_) in enumerate(layers) if index == bucket.index]
        top, bottom = places[0] * height, (places[-1] + 1) * height
        words = f"bucket {bucket.index}\n{format_bytes(bucket.nbytes)}"
        _column(ax, _BUCKETS, top, bottom, _SHADES[bucket.index % 2], words)
        middles.append((top + bottom) / 2)
        for place in places:
            _arrow(ax, (sum(_LAYERS), (place + 0.5) * height), (_BUCKETS[0], middles[-1]))
    return middles


def _layers(bucket: Bucket, names: Sequence[str], nbytes: Sequence[int]) -> list[tuple[str, int]]:
    """The layers of a bucket with the bytes of all their parameters in it."""
    sizes: dict[str, int] = {}
    for number in bucket.parameters:
        layer = names[number].rpartition(".")[0]
        sizes[layer] = sizes.get(layer, 0) + nbytes[number]
    return list(sizes.items())


def _column(ax: Axes, at: tuple[float, float], top: float, bottom: float, color: str, words: str) -> None:
    light = color in (*_SHADES, LANE)
    ax.add_patch(
        Rectangle((at[0], top + _GAP / 2), at[1], bottom - top - _GAP, facecolor=color, edgecolor=MUTED, linewidth=0.8)
    )
    ink = INK if light else "white"
    ax.text(at[0] + at[1] / 2, (top + bottom) / 2, words, ha="center", va="center", size=9, color=ink)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    ax.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "color": MUTED, "linewidth": 1, "shrinkA": 1, "shrinkB": 1}
    )
