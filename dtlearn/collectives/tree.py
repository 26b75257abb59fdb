"""The binomial tree: whoever has the data passes it on, so the number of ranks that have it doubles in every step.

ceil(log2 N) steps instead of N-1: the choice for small tensors, where latency is all. For large ones each step moves
the whole tensor, which is why an all-reduce over trees costs about log2 N times the bytes of a ring (Thakur,
Rabenseifner and Gropp, 2005, "Optimization of collective communication operations in MPICH").
"""

from __future__ import annotations

from .plan import Move, Plan, Step, check_size, spans


def broadcast(num_ranks: int, root: int = 0) -> Plan:
    """In step k the first 2^k ranks, counted from the root, send to the next 2^k."""
    check_size(num_ranks, root)
    steps = tuple(tuple(Move(s, d, 0, 1) for s, d in pairs) for pairs in _doubling(num_ranks, root))
    return Plan("broadcast", "tree", num_ranks, 1, steps, root)


def reduce(num_ranks: int, root: int = 0) -> Plan:
    """A broadcast backwards: the messages turn round, and the receiver adds."""
    check_size(num_ranks, root)
    pairs_by_step = reversed(_doubling(num_ranks, root))
    steps = tuple(tuple(Move(d, s, 0, 1, reduce=True) for s, d in pairs) for pairs in pairs_by_step)
    return Plan("reduce", "tree", num_ranks, 1, steps, root)


def all_reduce(num_ranks: int) -> Plan:
    """Reduce to rank 0, then broadcast: 2 ceil(log2 N) steps of n bytes."""
    steps = reduce(num_ranks).steps + broadcast(num_ranks).steps
    return Plan("all_reduce", "tree", num_ranks, 1, steps)


def scatter(num_ranks: int, root: int = 0) -> Plan:
    """The root gives the far half of the ranks' chunks to one of them, which shares them out, and so on."""
    check_size(num_ranks, root)
    return Plan("scatter", "tree", num_ranks, num_ranks, tuple(_halving(num_ranks, root)), root)


def gather(num_ranks: int, root: int = 0) -> Plan:
    """A scatter backwards."""
    check_size(num_ranks, root)
    steps = tuple(
        tuple(Move(m.dst, m.src, m.first, m.last) for m in step) for step in reversed(_halving(num_ranks, root))
    )
    return Plan("gather", "tree", num_ranks, num_ranks, steps, root)


def _doubling(num_ranks: int, root: int) -> list[list[tuple[int, int]]]:
    """Who passes to whom, step by step; ranks are counted from the root."""
    steps, have = [], 1
    while have < num_ranks:
        pairs = [(v, v + have) for v in range(have) if v + have < num_ranks]
        steps.append([((s + root) % num_ranks, (d + root) % num_ranks) for s, d in pairs])
        have *= 2
    return steps


def _halving(num_ranks: int, root: int) -> list[Step]:
    """Place v, counted from the root, holds the chunks of places v to v + width - 1 and gives away the upper half."""
    width = 1
    while width < num_ranks:
        width *= 2
    steps: list[Step] = []
    while width > 1:
        width //= 2
        moves: list[Move] = []
        for v in range(0, num_ranks - width, 2 * width):
            places = range(v + width, min(v + 2 * width, num_ranks))
            src, dst = (v + root) % num_ranks, (v + width + root) % num_ranks
            # Counted from the root the chunks are in a row; in their own numbers they may wrap round: two messages.
            moves += [Move(src, dst, a, b) for a, b in spans((p + root) % num_ranks for p in places)]
        steps.append(tuple(moves))
    return steps
