"""A cluster drawn from its data: devices at their places, links by kind, and what is known of each kind beside it."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle

from ..style import INK, LANE, MUTED, headline_above, ink_on, legend_below, new_figure, rank_color, style
from ..units import format_bytes
from .fabric import Fabric, FabricLink, FabricNode

# Colour, width and dashes of each kind of link; each of the last two alone tells it from the others.
_LINKS: dict[str, tuple[str, float, Any]] = {
    "NVLink": ("#009E73", 3.0, "-"),
    "PCIe": (MUTED, 1.2, (0, (2, 1.5))),
    "network": ("#0072B2", 1.1, "-"),
    "uplinks": (INK, 1.8, (0, (5, 1.5))),
    "axis 0": ("#0072B2", 2.0, "-"),
    "axis 1": ("#D55E00", 2.0, (0, (5, 1.2))),
    "axis 2": ("#009E73", 2.0, (0, (1.5, 1))),
}
_SIZES = {"gpu": (0.86, 0.5), "card": (0.86, 0.5), "leaf": (3.1, 0.62), "spine": (3.6, 0.62), "chip": (0.44, 0.26)}
_TEXTS = 36  # chips of a torus that have room for their coordinates
_PLATE = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.9}


def fabric_picture(fabric: Fabric, title: str = "", label: str = "") -> Figure:
    """Draw a cluster.

    Args:
        fabric: of `hgx_node`, `rail_fabric` or `torus_fabric`, or of your own.
        title: what the figure is about; "": the cluster's name.
        label: printed under the title; "": how many devices and links there are.
    """
    at = {node.name: node for node in fabric.nodes}
    xs, ys = zip(*(node.at for node in fabric.nodes), strict=True)
    torus = any(link.wraps for link in fabric.links)
    beside, above = (0.6, 0.6) if torus else (0.75, 0.5)
    left, right, low, high = min(xs) - beside, max(xs) + beside, min(ys) - above, max(ys) + above
    inches = min(8.8 * (high - low) / (right - left), 3.9) if torus else 0.56 * (high - low)
    sizes = {node.name: _size_of(node, fabric) for node in fabric.nodes}
    with style():
        fig = new_figure(height=1.0 + 0.2 * len(fabric.rates) + inches)
        headline_above(
            fig, title or fabric.name, label or f"{len(fabric.nodes)} devices and {len(fabric.links)} links, each drawn"
        )
        ax = fig.add_subplot()
        for name, members in fabric.boxes.items():
            _draw_box(ax, name, [at[member] for member in members])
        for link in fabric.links:
            _draw_link(ax, link, at, sizes)
        for kind, bandwidth in fabric.bandwidths.items():
            _draw_bandwidth(ax, kind, f"{format_bytes(bandwidth)}/s", fabric, at)
        for node in fabric.nodes:
            _draw_node(ax, node, sizes[node.name], with_text=not torus or len(at) <= _TEXTS)
        ax.set(xlim=(left, right), ylim=(low, high))
        ax.set_aspect("equal" if torus else "auto")
        ax.axis("off")
        legend_below(fig, [_handle(kind, rate) for kind, rate in fabric.rates.items()], columns=1)
    return fig


def _size_of(node: FabricNode, fabric: Fabric) -> tuple[float, float]:
    """Width and height: a bar is as wide as what hangs on it, any other device as wide as its neighbours allow."""
    if node.kind in ("switch", "outside"):
        ends = [end for link in fabric.links if node.name in link.ends for end in link.ends]
        hanging = [other.at[0] for other in fabric.nodes if other.name in ends and other.name != node.name]
        return max(hanging) - min(hanging) + 0.86, 0.45
    width, height = _SIZES[node.kind]
    if node.kind == "chip":
        return (width, height) if len(fabric.nodes) <= _TEXTS else (0.2, 0.17)
    others = [abs(n.at[0] - node.at[0]) for n in fabric.nodes if n.kind == node.kind and n.name != node.name]
    return min([width, *(0.86 * apart for apart in others)]), height


def _draw_node(ax: Axes, node: FabricNode, size: tuple[float, float], with_text: bool) -> None:
    width, height = size
    x, y = node.at
    faces = {"switch": "#009E73", "gpu": INK, "card": LANE, "chip": LANE}
    face = faces.get(node.kind, "white") if node.rail is None else rank_color(node.rail)
    ax.add_patch(
        Rectangle((x - width / 2, y - height / 2), width, height, fc=face, ec=INK, lw=1, zorder=4, gid=node.kind)
    )
    if with_text and node.text:
        ink = ink_on(face)
        ax.text(x, y, node.text, ha="center", va="center", size=9, color=ink, zorder=5)


def _draw_link(ax: Axes, link: FabricLink, at: dict[str, FabricNode], sizes: dict[str, tuple[float, float]]) -> None:
    """Draw a line; around a torus an arc or, where a third axis leaves no room for arcs, a stub at both ends."""
    one, other = (at[end] for end in link.ends)
    color, width, dashes = _LINKS[link.kind]
    rail = next((node.rail for node in (one, other) if node.rail is not None), None)
    if link.kind == "network" and rail is not None:
        color = rank_color(rail)
    if not link.wraps:
        xs, ys = _line(one, other, sizes)
        ax.plot(xs, ys, color=color, lw=width, ls=dashes, zorder=2, gid=link.kind)
        return
    dx, dy = one.at[0] - other.at[0], one.at[1] - other.at[1]  # from the first chip of the row to the last
    length = math.hypot(dx, dy)
    if one.text.count(",") == 1:
        bend = (0.8 if dy == 0 else -0.8) / length
        arc = FancyArrowPatch(
            one.at, other.at, arrowstyle="-", connectionstyle=f"arc3,rad={bend}", shrinkA=0, shrinkB=0
        )
        arc.set(color=color, lw=width * 0.7, ls=dashes, zorder=1, gid="wrap")
        ax.add_patch(arc)
        return
    for end, sign in ((one, 1), (other, -1)):
        tip = (end.at[0] + sign * 0.42 * dx / length, end.at[1] + sign * 0.42 * dy / length)
        ax.plot((end.at[0], tip[0]), (end.at[1], tip[1]), color=color, lw=width * 0.7, ls=dashes, zorder=2, gid="wrap")
        ax.plot(*tip, "o", ms=3, color=color, zorder=2)


def _line(
    one: FabricNode, other: FabricNode, sizes: dict[str, tuple[float, float]]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ends of a link's line, xs and ys: upright at a bar that is as wide as all of them, else from edge to edge."""
    if one.kind == other.kind == "chip":
        return (one.at[0], other.at[0]), (one.at[1], other.at[1])
    low, high = sorted((one, other), key=lambda node: node.at[1])
    xs = [node.at[0] for node in (low, high)]
    for place, node in enumerate((low, high)):
        if node.kind in ("switch", "outside"):
            xs[place] = xs[1 - place]
    return (xs[0], xs[1]), (low.at[1] + sizes[low.name][1] / 2, high.at[1] - sizes[high.name][1] / 2)


def _draw_bandwidth(ax: Axes, kind: str, words: str, fabric: Fabric, at: dict[str, FabricNode]) -> None:
    """Write a bandwidth at the last link of its kind; where GPUs stand close together, only the legend has it."""
    ends = [at[end] for end in [link for link in fabric.links if link.kind == kind][-1].ends]
    if kind == "NVLink" and len(fabric.boxes) > 1:
        return
    low, high = sorted(ends, key=lambda node: node.at[1])
    x = low.at[0] if high.kind == "outside" else high.at[0] if low.kind == "switch" else (low.at[0] + high.at[0]) / 2
    y = (low.at[1] + high.at[1]) / 2
    ax.text(x, y, words, ha="center", va="center", size=9, bbox=_PLATE, zorder=6, gid=f"bandwidth {kind}")


def _draw_box(ax: Axes, name: str, members: list[FabricNode]) -> None:
    xs, ys = zip(*(node.at for node in members), strict=True)
    low, left = min(ys) - 0.42, min(xs) - 0.6
    size = (max(xs) - left + 0.6, max(ys) - low + 0.42)
    ax.add_patch(Rectangle((left, low), *size, fc="#fafbfc", ec=MUTED, lw=1, ls=(0, (4, 3)), zorder=0, gid="box"))
    bar = min(members, key=lambda node: node.at[1])
    if not bar.text:
        ax.text(*bar.at, name, size=9, ha="center", va="center", color=INK, zorder=6)


def _handle(kind: str, rate: str) -> Line2D:
    color, width, dashes = _LINKS[kind]
    return Line2D([], [], color=color, lw=width, ls=dashes, label=f"{kind}: {rate}")
