"""Which order of the axes sends how many bytes from node to node.

Ranks 0 to 7 are in the first node, 8 to 15 in the second, and so on. What an axis sends stays in a node as long as its
neighbours are there: the innermost axes have the fast link, and it is for the bytes to say which ones need it. Bytes
are not yet time: dp's can travel while backward computes, those of tp cannot.

    tp4 pp2 dp2, 4 ranks in a node       tp first: each tp group in a node; pp and dp from node to node
                                         dp first: each dp group in a node; tp from node to node, in every layer

Sources: Narayanan et al., 2104.04473, section 3.2 ("takeaway 1": tensor parallelism up to the size of a node); Llama
Team, 2407.21783, section 3.3.2.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from .layout import MeshLayout, axes_in_use


class OrderCost(NamedTuple):
    """What an order of the axes costs.

    Attributes:
        layout: with that order.
        between_nodes: bytes that leave a node in a step, of all ranks, by axis.
    """

    layout: MeshLayout
    between_nodes: dict[str, float]

    @property
    def total(self) -> float:
        """Bytes that leave a node in a step, of all axes together."""
        return sum(self.between_nodes.values())


def links(layout: MeshLayout, axis: str) -> list[tuple[int, int]]:
    """From which rank to which one an axis sends: around a ring; along pp, from each stage to the next one only.

    **Communication** and **Memory**: none.

    Args:
        layout: of the mesh.
        axis: one of its axes.
    """
    pairs = ((rank, layout.neighbour(rank, axis)) for rank in range(layout.world_size))
    last = layout.sizes[axis] - 1
    is_line = axis == "pp"
    return [
        (rank, other)
        for rank, other in pairs
        if rank != other and not (is_line and getattr(layout.coordinates(rank), axis) == last)
    ]


def bytes_between_nodes(layout: MeshLayout, sent: Mapping[str, float], ranks_per_node: int) -> dict[str, float]:
    """Bytes of a step that go from node to node, by axis, all ranks together.

    **Communication** and **Memory**: none.

    Args:
        layout: of the mesh.
        sent: by axis, the bytes of each of its `links`: what a rank sends in its rings; along pp what two neighbours
            send each other. `step_bytes` of a rank in the middle of a pipeline says both.
        ranks_per_node: ranks that share the fast link.

    Raises:
        ValueError: a node without a rank.
    """
    if ranks_per_node < 1:
        raise ValueError(f"a node has 1 rank or more, got {ranks_per_node}")
    return {
        axis: nbytes * sum(one // ranks_per_node != other // ranks_per_node for one, other in links(layout, axis))
        for axis, nbytes in sent.items()
    }


def compare_orders(layout: MeshLayout, sent: Mapping[str, float], ranks_per_node: int) -> list[OrderCost]:
    """All orders of the axes that have several ranks, the cheapest first; the layout's own order wins a tie.

    **Communication** and **Memory**: none.

    Args:
        layout: of the mesh; the order of its other axes is kept.
        sent, ranks_per_node: as for `bytes_between_nodes`.

    Raises:
        ValueError: an axis in use is missing from `sent`; or as there.
    """
    used = axes_in_use(layout, layout.order)
    if missing := [axis for axis in used if axis not in sent]:
        raise ValueError(f"{layout} sends along {', '.join(used)}; `sent` does not say how much along {missing[0]}")
    found = []
    for permuted in itertools.permutations(used):  # the first one is the layout's own
        places = iter(permuted)
        other = replace(layout, order=tuple(next(places) if axis in used else axis for axis in layout.order))
        found.append(OrderCost(other, bytes_between_nodes(other, sent, ranks_per_node)))
    return sorted(found, key=lambda cost: cost.total)
