"""Which server keeps which parameters: a row for each server, a box for each piece, on a scale of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..style import ALARM, INK, LANE, WIDTH, headline_above, ink_on, new_figure, rank_color, style
from ..units import format_bytes, format_ratio

if TYPE_CHECKING:
    from dtlearn.parameter_server.placement import KeyRange, ServerPlacement

_BAR = 0.78  # of a row's height
_INCHES_PER_CHARACTER = 0.072
_AXES_INCHES = WIDTH * 0.9


def server_placement(
    placements: Mapping[str, ServerPlacement],
    title: str = "Which server keeps which parameters",
    label: str = "",
    itemsize: int = 4,
) -> Figure:
    """Draw each placement below the other, on one scale of bytes: a pull or a push moves as much as a row is long.

    Args:
        placements: by name.
        title: what the figure is about.
        label: what is placed, printed under the title.
        itemsize: bytes of an element.

    Raises:
        ValueError: no placement.
    """
    if not placements:
        raise ValueError("a placement is needed; got none")
    right = 1.3 * max(max(placement.bytes_per_server(itemsize)) for placement in placements.values())
    rows = [placement.num_servers for placement in placements.values()]
    with style():
        fig = new_figure(height=1.15 + 0.3 * sum(rows) + 0.32 * len(rows))
        all_axes = fig.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=rows)[:, 0]
        for (name, placement), ax in zip(placements.items(), all_axes, strict=True):
            _draw(ax, placement, right, itemsize)
            ax.annotate(name, (0, 1), (0, 2), xycoords="axes fraction", textcoords="offset points", weight="bold")
        all_axes[-1].set_xticks([])
        headline_above(fig, title, label)
    return fig


def server_placement_words(placement: ServerPlacement, itemsize: int = 4) -> str:
    """Who keeps what, in a sentence, for alt texts."""
    return "; ".join(
        f"server {server}: {', '.join(_name(placement, piece) for piece in placement.of_server(server))} "
        f"({format_bytes(nbytes)})"
        for server, nbytes in enumerate(placement.bytes_per_server(itemsize))
    )


def _name(placement: ServerPlacement, piece: KeyRange) -> str:
    size = 1
    for length in placement.shapes[piece.key]:
        size *= length
    return piece.key if (piece.start, piece.stop) == (0, size) else f"{piece.key}[{piece.start}:{piece.stop}]"


def _draw(ax: Axes, placement: ServerPlacement, right: float, itemsize: int) -> None:
    loads = placement.bytes_per_server(itemsize)
    for server, load in enumerate(loads):
        ax.axhspan(server - 0.46, server + 0.46, color=LANE, lw=0, zorder=0)
        at, color = 0.0, rank_color(server)
        for piece in placement.of_server(server):
            width = itemsize * (piece.stop - piece.start)
            ax.add_patch(Rectangle((at, server - _BAR / 2), width, _BAR, fc=color, ec="white", lw=1.2))
            name = _name(placement, piece)
            names = [name, name.split("[")[0] + "[…]" * name.endswith("]"), name.removeprefix("layers.")]
            room = width / right * _AXES_INCHES / _INCHES_PER_CHARACTER
            if text := next((text for text in names if room > len(text)), ""):
                ax.text(at + width / 2, server, text, ha="center", va="center_baseline", size=8, color=ink_on(color))
            at += width
        fullest = len(loads) > 1 and load == max(loads) > 1.02 * min(loads)
        words = format_bytes(load) + (f", {format_ratio(load / (sum(loads) / len(loads)))} the mean" if fullest else "")
        ax.text(at + 0.008 * right, server, words, va="center", size=9, color=ALARM if fullest else INK)
    ax.set_xlim(0, right)
    ax.set_ylim(len(loads) - 0.5, -0.5)
    ax.set_yticks(range(len(loads)), [f"server {server}" for server in range(len(loads))], color=INK)
    ax.tick_params(axis="y", length=0)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
