"""The binomial tree: whoever has the data passes it on, so the number of ranks that have it doubles in every step.

ceil(log2 N) steps instead of N-1: the choice for small tensors, where latency is all. For large ones each step moves
the whole tensor, which is why an all-reduce over such trees costs about log2 N times the bytes of a ring (Thakur,
Rabenseifner and Gropp, 2005, "Optimization of collective communication operations in MPICH").

Two things mend that, and NCCL does both. Pipelining: a rank passes on one piece while it receives the next. And two
binary trees instead of one: a leaf of the first is an inner rank of the second, and each tree carries half of the
tensor, so that every rank sends and receives at full speed (Sanders, Speck and Traff, 2009, "Two-tree algorithms for
full bandwidth broadcast, reduction and scan").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

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


def double_all_reduce(num_ranks: int, pieces: int = 8) -> Plan:
    """Both trees of `double_parents`, half of the tensor each, in `pieces` pieces that follow one another.

    In a step a rank sends at most one piece and receives at most one. It sends about 2 n bytes whatever N is, as in a
    ring; a piece takes a number of steps that grows with log2 N, and the next piece follows close behind.

    Raises:
        ValueError: no ranks, or no pieces.
    """
    check_size(num_ranks)
    if pieces < 1:
        raise ValueError(f"a half of the tensor is cut into at least 1 piece; got {pieces}")
    trees = double_parents(num_ranks)
    depths = [{rank: _depth(rank, parents) for rank in parents} for parents in trees]
    up: list[Move] = []
    down: list[Move] = []
    for piece in range(pieces):
        for half, (parents, depth) in enumerate(zip(trees, depths, strict=True)):
            c = 2 * piece + half
            by_depth = sorted(parents, key=depth.__getitem__)
            up += [Move(rank, parents[rank], c, c + 1, reduce=True) for rank in reversed(by_depth)]
            down += [Move(parents[rank], rank, c, c + 1) for rank in by_depth]
    return Plan("all_reduce", "double-tree", num_ranks, 2 * pieces, tuple(_one_at_a_time([*up, *down])))


def _one_at_a_time(moves: Iterable[Move]) -> list[Step]:
    """Each move in the first step in which its sender has the chunk, sends nothing else, and its receiver is free."""
    steps: dict[int, list[Move]] = defaultdict(list)
    has: dict[tuple[int, int], int] = defaultdict(int)  # (rank, chunk): from which step on
    sends: dict[int, set[int]] = defaultdict(set)
    receives: dict[int, set[int]] = defaultdict(set)
    for move in moves:
        step = has[move.src, move.first]
        while step in sends[move.src] or step in receives[move.dst]:
            step += 1
        sends[move.src].add(step)
        receives[move.dst].add(step)
        has[move.dst, move.first] = max(has[move.dst, move.first], step + 1)
        steps[step].append(move)
    return [tuple(steps[k]) for k in sorted(steps)]


def double_parents(num_ranks: int) -> tuple[dict[int, int], dict[int, int]]:
    """The parent of each rank but the root, in both trees.

    The first is a binary tree in which every second rank is a leaf. The second is the same tree with all ranks moved by
    one, or mirrored if N is even: so a rank that has children in one has none in the other, or only a rank that has no
    room for it elsewhere.
    """
    N, first = num_ranks, {}
    for rank in range(1, N):
        low = rank & -rank  # the lowest bit that is set: the height of this rank above the leaves
        parent = (rank ^ low) | (low << 1)
        first[rank] = parent if parent < N else rank ^ low
    turn = (lambda r: N - 1 - r) if N % 2 == 0 else (lambda r: (r + 1) % N)
    return first, {turn(rank): turn(parent) for rank, parent in first.items()}


def _depth(rank: int, parents: Mapping[int, int]) -> int:
    depth = 0
    while rank in parents:
        rank, depth = parents[rank], depth + 1
    return depth


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
