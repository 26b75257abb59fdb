"""The rule of ch02.hierarchical_all_reduce: how much a node sends to others, and if it is too much, why."""

from __future__ import annotations

from collections.abc import Callable

from dtlearn.grading import Case, Finding, Given, Rule
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import ranks_text


def most_bytes_between(unit: Callable[[Case], int], limit: Callable[[Case, Given], float]) -> Rule:
    """No node sends more bytes than this to other nodes, all its ranks together.

    Args:
        unit: `unit(case)`: ranks of a node; ranks 0 to unit - 1 are the first.
        limit: `limit(case, given)`: in bytes.
    """

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        size, most, made = unit(case), limit(case, given), dict[int, int]()
        for event in record:
            if event.sends and event.peer is not None and event.rank // size != event.peer // size:
                made[event.rank // size] = made.get(event.rank // size, 0) + event.nbytes
        node = max(made, key=lambda n: made[n], default=0)
        if not made or made[node] <= most:
            return None
        ranks = ranks_text(list(range(node * size, (node + 1) * size)))
        text = f"node {node} ({ranks}) sent {made[node]:,} bytes to other nodes"
        over = f" ({made[node] / most:.2f}x)" if most else ""
        text = f"{text}; the budget is {most:,.0f}{over}{_why(case.world_size, size, record)}"
        return Finding("DTL-RULE-BYTES", text, node * size)

    return rule


def _why(n: int, size: int, record: Record) -> str:
    """What kind of answer sends so much between nodes, from who sends to whom and in which order; "" if unknown."""
    sent = {rank: [(e.peer or 0, e.nbytes) for e in record.select(rank=rank) if e.sends] for rank in range(n)}
    if size > 1 and all(peer == (rank + 1) % n for rank, messages in sent.items() for peer, _ in messages):
        return (
            f": all {n} ranks form one ring, which crosses from node to node in every step; ranks_per_node is not used"
        )
    if early := across_too_early(n, size, record):
        return f": {early}"
    crossing = [nbytes for rank, messages in sent.items() for peer, nbytes in messages if peer // size != rank // size]
    if crossing and max(crossing) < 1.5 * min(crossing) and n // size > 2:  # chunks may differ by an element
        return (
            f": every message between nodes has {crossing[0]:,} bytes, a whole chunk, and goes to {n // size - 1} "
            f"nodes; cut the chunk into {n // size} pieces, reduce-scatter and all-gather these"
        )
    return ""


def across_too_early(n: int, size: int, record: Record) -> str:
    """A rank whose first message goes to another node, with nodes of several ranks; "" if there is none.

    If all ranks have sent, their first messages tell which ranks were taken for leaders, or for a node.
    """
    first = {e.rank: e.peer for e in reversed(record.events) if e.sends and e.peer is not None}
    for rank in range(n if size > 1 else 0):
        to = first.get(rank, rank)
        if to // size != rank // size:
            if all(first.get(r) == r // size for r in range(1, n)):
                own = rank // size * size
                return (
                    f"rank {rank} takes rank {to}, the number of its node, as its leader; the first rank of its node "
                    f"is rank {own}: {rank} // {size} * {size}"
                )
            nodes = n // size  # if ranks_per_node is taken for it, it is the ranks of a node
            if len(first) == n and all(first[r] // nodes == r // nodes for r in first):
                begin = rank // nodes * nodes
                group = ranks_text(list(range(begin, begin + nodes)))
                return f"{group} are treated as one node: is ranks_per_node taken for the number of nodes?"
            return (
                f"the first message of rank {rank} goes to rank {to}, in another node, before its node has added "
                f"anything up; the reduce-scatter inside the node comes first, and the node of rank r is r // {size}"
            )
    return ""
