"""Two levels: fast links inside a node, slow ones between nodes.

Reduce-scatter inside each node; then each rank all-reduces its chunk with the ranks of the same place in the other
nodes; then all-gather inside the node. Between nodes a rank moves only 1/L of what it would in one flat ring, where L
is the number of ranks per node, and every network card of a node carries its share at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import ring
from .plan import Move, Plan, Step, check_size, side_by_side


def all_reduce(num_ranks: int, ranks_per_node: int) -> Plan:
    """Rings inside the nodes, rings across, rings inside again.

    Raises:
        ValueError: the nodes do not have the same number of ranks.
    """
    check_size(num_ranks)
    L = ranks_per_node
    if L < 1 or num_ranks % L:
        raise ValueError(
            f"{num_ranks} ranks cannot be cut into nodes of {L}; every node needs the same number",
        )
    M = num_ranks // L  # nodes
    nodes = [range(m * L, (m + 1) * L) for m in range(M)]
    places = [range(p, num_ranks, L) for p in range(L)]  # ranks of the same place in every node
    inside, across = ring.reduce_scatter(L), ring.all_reduce(M)
    steps: list[Step] = [
        *side_by_side([renamed(inside, node, width=M) for node in nodes]),
        *side_by_side([renamed(across, ranks, first=p * M) for p, ranks in enumerate(places)]),
        *side_by_side([renamed(ring.all_gather(L), node, width=M) for node in nodes]),
    ]
    return Plan("all_reduce", "hierarchical", num_ranks, num_ranks, tuple(steps))


def renamed(plan: Plan, ranks: Sequence[int], *, first: int = 0, width: int = 1) -> list[Step]:
    """The steps of a plan among other ranks, with other chunks.

    Its rank i is `ranks[i]`; its chunk c stands for `width` chunks, from `first + c * width` on.
    """

    def rename(move: Move) -> Move:
        begin, end = first + move.first * width, first + move.last * width
        return Move(ranks[move.src], ranks[move.dst], begin, end, move.reduce)

    return [tuple(rename(move) for move in step) for step in plan.steps]
