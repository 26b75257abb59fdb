"""Two levels: fast links inside a node, slow ones between nodes.

Reduce-scatter inside each node; then each rank all-reduces its chunk with the ranks of the same place in the other
nodes; then all-gather inside the node. Between nodes a rank moves only 1/L of what it would in one flat ring, where L
is the number of ranks per node, and every network card of a node carries its share at the same time.
"""

from __future__ import annotations

from . import ring
from .plan import Plan, Step, check_size, side_by_side


def all_reduce(num_ranks: int, ranks_per_node: int) -> Plan:
    """Rings inside the nodes, rings across, rings inside again.

    Raises:
        ValueError: the nodes do not have the same number of ranks.
    """
    check_size(num_ranks)
    L = ranks_per_node
    if L < 1 or num_ranks % L:
        raise ValueError(f"{num_ranks} ranks cannot be cut into nodes of {L}; every node needs the same number")
    M = num_ranks // L  # nodes
    nodes = [range(m * L, (m + 1) * L) for m in range(M)]
    places = [range(place, num_ranks, L) for place in range(L)]  # ranks of the same place in every node
    steps: list[Step] = [
        *side_by_side([ring.reduce_scatter_steps(node, width=M) for node in nodes]),
        *side_by_side([ring.reduce_scatter_steps(ranks, base=k * M) for k, ranks in enumerate(places)]),
        *side_by_side([ring.all_gather_steps(ranks, base=k * M) for k, ranks in enumerate(places)]),
        *side_by_side([ring.all_gather_steps(node, width=M) for node in nodes]),
    ]
    return Plan("all_reduce", "hierarchical", num_ranks, num_ranks, tuple(steps))
