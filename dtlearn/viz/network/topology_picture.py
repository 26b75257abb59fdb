"""A cluster as the cost model sees it: racks, nodes, network cards and GPUs, drawn from a `Topology`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..style import INK, MUTED, new_figure, style
from ..units import format_bytes, format_seconds

if TYPE_CHECKING:
    from dtlearn.collectives.topology import Topology

_LINKS = ("#009E73", "#0072B2", "#D55E00")  # of the levels, from the innermost out
_WIDTHS = (3.0, 1.1, 2.2)
_GPU_Y, _CARD_Y, _LEAF_Y, _SPINE_Y = 0.0, 0.8, 2.2, 3.5
_NODE_GAP, _RACK_GAP = 1.4, 2.2  # in widths of a GPU


def topology_picture(topology: Topology, num_ranks: int, title: str) -> Figure:
    """Draw a topology of three levels: links inside a node, a network card's, a rack's uplinks.

    Args:
        topology: nodes in racks, such as `collectives.topology.RACKS_OF_DGX_H100`.
        num_ranks: ranks to draw; a multiple of a rack's.
        title: what the figure is about.

    Raises:
        ValueError: another number of levels, or ranks that do not fill racks.
    """
    if len(topology.levels) != 3:
        raise ValueError(f"a cluster with nodes and racks has three levels; {topology.name} has {len(topology.levels)}")
    inside, card, uplink = topology.levels
    if num_ranks < 1 or num_ranks % uplink.unit:
        raise ValueError(f"{num_ranks} ranks do not fill racks of {uplink.unit}")
    with style():
        fig = new_figure(height=4.3)
        ax = fig.add_subplot()
        end = _x(topology, num_ranks - 1)
        spines = [end * share for share in (0.28, 0.72)]
        for rack in range(num_ranks // uplink.unit):
            _draw_rack(ax, rack * uplink.unit, topology, spines)
        for number, x in enumerate(spines):
            _box(ax, x, _SPINE_Y, 13, 0.38, f"spine switch {number}")
        right = end + 3
        notes = [
            (_GPU_Y - 0.32, inside, f"{inside.name}: each GPU (black)"),
            ((_CARD_Y + _LEAF_Y) / 2 - 0.1, card, f"{card.name}: {_share(card.shared_by)}"),
            ((_LEAF_Y + _SPINE_Y) / 2, uplink, f"{uplink.name}: {_share(uplink.shared_by)}"),
        ]
        for (y, level, words), color in zip(notes, _LINKS, strict=True):
            ax.text(right, y + 0.2, words, size=9, weight="bold", color=color, va="center")
            rate = f"{format_bytes(level.bandwidth)}/s each way, {format_seconds(level.latency)}"
            ax.text(right, y - 0.13, rate, size=9, va="center")
        ax.set(xlim=(-2, end * 1.4), ylim=(-0.95, _SPINE_Y + 0.4))
        ax.axis("off")
        ax.set_title(title, loc="left")
        fig.supxlabel(
            f"Drawn from the cost model's data: {topology.name}. Numbers: ranks of a node.",
            x=0.005,
            ha="left",
            size=8.5,
            color=MUTED,
        )
    return fig


def topology_words(topology: Topology, num_ranks: int) -> str:
    """The picture in words."""
    _, card, uplink = topology.levels
    racks, nodes = num_ranks // uplink.unit, uplink.unit // card.unit
    own, cards, up = (f"{format_bytes(level.bandwidth)}/s" for level in topology.levels)
    return (
        f"{racks} racks of {nodes} nodes with {card.unit} GPUs. In a node each GPU has a link of {own} to a switch "
        f"that joins all of them. Network cards to the rack's leaf switch, {_share(card.shared_by)}: {cards}. Uplinks "
        f"from each leaf switch to every spine switch: {up} together, which {uplink.shared_by} GPUs share."
    )


def _share(ranks: int) -> str:
    return "one per GPU" if ranks == 1 else f"shared by {ranks} GPUs"


def _draw_rack(ax: Axes, first: int, topology: Topology, spines: list[float]) -> None:
    _, card, uplink = topology.levels
    left, right = _x(topology, first), _x(topology, first + uplink.unit - 1)
    middle = (left + right) / 2
    for x in spines:
        ax.plot([middle, x], [_LEAF_Y, _SPINE_Y], color=_LINKS[2], lw=_WIDTHS[2], zorder=1)
    for begin in range(first, first + uplink.unit, card.unit):
        _draw_node(ax, begin, topology, middle)
    _box(ax, middle, _LEAF_Y, 0.62 * uplink.unit, 0.36, f"leaf switch of rack {first // uplink.unit}")
    size = (right - left + 2.4, _LEAF_Y + 1.15)
    ax.add_patch(Rectangle((left - 1.2, -0.9), *size, fill=False, ec=MUTED, lw=1, ls=(0, (4, 3))))


def _draw_node(ax: Axes, first: int, topology: Topology, leaf: float) -> None:
    _, card, _ = topology.levels
    left = _x(topology, first)
    right = left + card.unit - 1
    box = Rectangle((left - 0.7, -0.8), card.unit + 0.4, _CARD_Y + 1.05, fc="#fafbfc", ec=MUTED, lw=1, zorder=1)
    ax.add_patch(box)
    ax.plot([left - 0.3, right + 0.3], [_GPU_Y - 0.42] * 2, color=_LINKS[0], lw=5, solid_capstyle="butt", zorder=2)
    for number in range(card.unit // card.shared_by):
        x = left + number * card.shared_by + (card.shared_by - 1) / 2
        ax.plot([x, leaf + (x - leaf) * 0.4], [_CARD_Y, _LEAF_Y], color=_LINKS[1], lw=_WIDTHS[1], zorder=2)
        ax.add_patch(Rectangle((x - 0.3, _CARD_Y - 0.14), 0.6, 0.28, fc=_LINKS[1], lw=0, zorder=3))
        for gpu in range(number * card.shared_by, (number + 1) * card.shared_by):
            ax.plot([left + gpu, x], [_GPU_Y, _CARD_Y], color=MUTED, lw=0.7, zorder=2)
    for gpu in range(card.unit):
        ax.plot([left + gpu] * 2, [_GPU_Y - 0.42, _GPU_Y], color=_LINKS[0], lw=_WIDTHS[0], zorder=2)
        ax.add_patch(Rectangle((left + gpu - 0.34, _GPU_Y - 0.17), 0.68, 0.34, fc=INK, lw=0, zorder=3))
    ax.text((left + right) / 2, -0.66, f"{first}\u2013{first + card.unit - 1}", size=8, ha="center", va="center")


def _x(topology: Topology, rank: int) -> float:
    """Where a GPU stands, with gaps between nodes and racks."""
    _, card, uplink = topology.levels
    return rank + _NODE_GAP * (rank // card.unit) + _RACK_GAP * (rank // uplink.unit)


def _box(ax: Axes, x: float, y: float, width: float, height: float, words: str) -> None:
    ax.add_patch(Rectangle((x - width / 2, y - height / 2), width, height, fc="white", ec=INK, lw=1.2, zorder=3))
    ax.text(x, y, words, size=8.5, ha="center", va="center", zorder=4)
