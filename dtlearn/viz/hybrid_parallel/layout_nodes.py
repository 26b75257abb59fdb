"""A layout on its nodes: all nodes as a map, and of one replica each GPU, its stage and its tensor-parallel group.

The map says how far apart the ranks of a group are; the rows below say what shares a node, and so the fast link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ..style import GRID, INK, LANE, MUTED, headline_above, ink_on, legend_below, new_figure, rank_color, style

if TYPE_CHECKING:
    from dtlearn.hybrid_parallel.layout import MeshLayout

_MOST_ROWS = 16  # nodes that are drawn in full
_COLUMNS = 64  # nodes in a line of the map
_NUMBERED = 64  # nodes of a map that have room for their numbers
_PEER = "#56B4E9"


class NodesOfReplica(NamedTuple):
    """Where one copy of the model is.

    Attributes:
        first: its lowest rank.
        nodes: that hold ranks of it.
        peers: that hold the same part of the model for other rows, as its first rank does: that rank's dp group.
        num_nodes: of the cluster.
    """

    first: int
    nodes: tuple[int, ...]
    peers: tuple[int, ...]
    num_nodes: int


def nodes_of_replica(layout: MeshLayout, ranks_per_node: int = 8, replica: int = 0) -> NodesOfReplica:
    """Find the nodes of one replica.

    Args:
        layout: of the mesh.
        ranks_per_node: ranks that share the fast link.
        replica: one of `layout.num_replicas`.

    Raises:
        ValueError: no such replica, or a node without a rank.
    """
    if ranks_per_node < 1 or not 0 <= replica < layout.num_replicas:
        raise ValueError(
            f"nodes of 1 rank or more and a replica from 0 to {layout.num_replicas - 1} are needed; got "
            f"{ranks_per_node} ranks in a node and replica {replica}"
        )
    first = next(rank for rank in range(layout.world_size) if layout.replica(rank) == replica)
    mine = layout.group(first, "tp", "cp", "pp")
    nodes, peers = (
        tuple(sorted({rank // ranks_per_node for rank in ranks})) for ranks in (mine, layout.group(first, "dp", "ep"))
    )
    return NodesOfReplica(first, nodes, peers, -(-layout.world_size // ranks_per_node))


def layout_on_nodes(
    layout: MeshLayout, ranks_per_node: int = 8, replica: int = 0, title: str = "", label: str = ""
) -> Figure:
    """Draw a map of all nodes, and one replica's nodes with a cell for each GPU.

    Args:
        layout: of the mesh.
        ranks_per_node: ranks that share the fast link.
        replica: the copy of the model that is drawn in full; of more than 16 nodes the first 16.
        title: what the figure is about; "": how many nodes one replica takes.
        label: printed under the title; "": the layout and its nodes.

    Raises:
        ValueError: no such replica, or a node without a rank.
    """
    place = nodes_of_replica(layout, ranks_per_node, replica)
    rows = place.nodes[:_MOST_ROWS]
    columns = 1 if len(rows) <= 8 else 2
    lines = -(-len(rows) // columns)
    across = _map_columns(place)
    down = -(-place.num_nodes // across)
    map_inches = max(0.32, min(0.3, 6.4 / across) * down) if place.num_nodes <= _NUMBERED else 0.075 * down
    with style():
        fig = new_figure(height=1.85 + map_inches + 0.43 * lines)
        taken = f"{len(place.nodes)} of {place.num_nodes:,} nodes"
        headline_above(
            fig,
            title or f"{layout}: one copy of the model is on {taken}",
            label
            or f"{layout.world_size:,} ranks on {place.num_nodes:,} nodes of {ranks_per_node}, {layout}, in this order",
        )
        of_map, of_rows = fig.subplots(2, 1, height_ratios=(map_inches, 0.43 * lines))
        _draw_map(of_map, place, across)
        _draw_rows(of_rows, layout, place, rows, ranks_per_node, columns)
        _titles(of_map, of_rows, place, rows, replica)
        legend_below(fig, _handles(place, replica, layout), columns=3)
    return fig


def layout_words(layout: MeshLayout, ranks_per_node: int = 8, replica: int = 0) -> str:
    """The picture in words."""
    place = nodes_of_replica(layout, ranks_per_node, replica)
    tp = {rank // ranks_per_node for rank in layout.group(place.first, "tp")}
    pp = {rank // ranks_per_node for rank in layout.group(place.first, "pp")}
    return (
        f"{layout.world_size:,} ranks on {place.num_nodes:,} nodes of {ranks_per_node}, {layout} from the innermost "
        f"axis outwards. Replica {replica} is on {len(place.nodes)} {_nodes(place.nodes)}; a tensor-parallel group of "
        f"it is on {len(tp)}, its pipeline of {layout.pp} stages on {len(pp)}, and the data-parallel group of its "
        f"first rank on {len(place.peers)}."
    )


def _nodes(numbers: tuple[int, ...]) -> str:
    """Numbers of nodes in words: a range if they are one."""
    if len(numbers) == 1:
        return f"node, {numbers[0]}"
    if numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"nodes, {numbers[0]} to {numbers[-1]}"
    listed = ", ".join(map(str, numbers[:3]))
    return f"nodes, {listed}{', ...' if len(numbers) > 3 else ''}"


def _map_columns(place: NodesOfReplica) -> int:
    """How many nodes are in a line: whole replicas where they lie together, so that the same stage is below itself."""
    most = min(_COLUMNS, place.num_nodes) if place.num_nodes > _NUMBERED else min(24, place.num_nodes)
    together = len(place.nodes) if place.nodes[-1] - place.nodes[0] + 1 == len(place.nodes) else 1
    return most // together * together or most


def _draw_map(ax: Axes, place: NodesOfReplica, across: int) -> None:
    """Draw a cell for each node; cells of one look are one artist, as a cluster may have thousands."""
    mine, peers = set(place.nodes), set(place.peers) - set(place.nodes)
    looks: dict[str, dict[str, Any]] = {
        "others": {"facecolor": LANE, "edgecolor": GRID},
        "peers": {"facecolor": _PEER, "edgecolor": INK, "hatch": "////"},
        "replica": {"facecolor": INK, "edgecolor": INK},
    }
    for name, nodes in zip(looks, (set(range(place.num_nodes)) - mine - peers, peers, mine), strict=True):
        corners = [(node % across + 0.06, node // across + 0.08) for node in sorted(nodes)]
        cells = [[(x, y), (x + 0.88, y), (x + 0.88, y + 0.84), (x, y + 0.84)] for x, y in corners]
        ax.add_collection(PolyCollection(cells, lw=0.6, gid=name, **looks[name]))
    for node in range(place.num_nodes if place.num_nodes <= _NUMBERED else 0):
        plate = {"boxstyle": "round,pad=0.08", "facecolor": "white", "edgecolor": "none"} if node in peers else None
        at, ink = (node % across + 0.5, node // across + 0.5), "white" if node in mine else INK
        ax.text(*at, str(node), ha="center", va="center", size=9, bbox=plate, color=ink)
    ax.set(xlim=(0, across), ylim=(-(-place.num_nodes // across), 0))
    ax.axis("off")


def _draw_rows(
    ax: Axes,
    layout: MeshLayout,
    place: NodesOfReplica,
    rows: tuple[int, ...],
    ranks_per_node: int,
    columns: int,
) -> None:
    """Draw a row for each node, a cell for each GPU, and a frame around the ranks of one tensor-parallel group."""
    lines, pitch = -(-len(rows) // columns), ranks_per_node + 2.2
    roomy = columns == 1 and ranks_per_node <= 8
    for number, node in enumerate(rows):
        left, y = number // lines * pitch, number % lines
        ax.text(left - 0.12, y + 0.5, f"node {node}", ha="right", va="center", size=9)
        ranks = range(node * ranks_per_node, min((node + 1) * ranks_per_node, layout.world_size))
        for run in _runs(layout, ranks):
            at, mine = left + run[0] - ranks[0], layout.replica(run[0]) == layout.replica(place.first)
            stage = layout.coordinates(run[0]).pp
            face = rank_color(stage) if mine else LANE
            ink = ink_on(face) if mine else MUTED
            frame = Rectangle((at + 0.05, y + 0.1), len(run) - 0.1, 0.8, fc=face, ec=INK if mine else GRID, lw=1.3)
            frame.set_gid("group" if mine else "other")
            ax.add_patch(frame)
            words = f"stage {stage}" if roomy or len(run) > 1 else f"pp {stage}"
            ax.text(at + len(run) / 2, y + 0.7, words, ha="center", va="center", size=9, color=ink, weight="bold")
            numbers = {left + rank - ranks[0] + 0.5: str(rank) for rank in run}
            if not roomy and run[-1] > 999 and len(run) > 1:  # the numbers of all would touch
                numbers = {at + len(run) / 2: f"ranks {run[0]} to {run[-1]}"}
            for x, text in numbers.items():
                ax.text(x, y + 0.33, text, ha="center", va="center", size=9, color=ink)
    ax.set(xlim=(-1.1 if columns == 1 else -1.9, columns * pitch - (pitch - ranks_per_node)), ylim=(lines, 0))
    ax.axis("off")


def _runs(layout: MeshLayout, ranks: range) -> list[list[int]]:
    """Runs of neighbouring ranks of a node that are in one tensor-parallel group."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank in layout.group(runs[-1][0], "tp"):
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return runs


def _titles(of_map: Axes, of_rows: Axes, place: NodesOfReplica, rows: tuple[int, ...], replica: int) -> None:
    more = len(place.nodes) - len(rows)
    whole = f", the first {len(rows)} of {len(place.nodes)} nodes" if more else ""
    of_map.set_title(f"All {place.num_nodes:,} nodes", loc="left", size=10, pad=4)
    of_rows.set_title(f"Replica {replica}{whole}: each GPU with its rank", loc="left", size=10, pad=4)


def _handles(place: NodesOfReplica, replica: int, layout: MeshLayout) -> list[Patch]:
    handles = [Patch(fc=INK, label=f"nodes of replica {replica}")]
    if set(place.peers) - set(place.nodes):
        name = f"nodes with the dp group of rank {place.first}"
        handles.append(Patch(fc=_PEER, ec=INK, lw=0.6, hatch="////", label=name))
    tp = f"tensor-parallel group (tp {layout.tp})" if layout.tp > 1 else "one rank"
    return [*handles, Patch(fc="white", ec=INK, lw=1.3, label=f"a frame: {tp}; colour: its stage")]
