"""The collectives as one would write them first: one rank does all the talking, one message after the other.

Right, and slow: rank 0's link carries everything while the others wait. Each step below has a single message.
"""

from __future__ import annotations

from .plan import Move, Plan, Step, check_size


def broadcast(num_ranks: int, root: int = 0) -> Plan:
    """The root sends the whole tensor to one rank after the other: N-1 messages of n bytes, all from the root."""
    check_size(num_ranks, root)
    steps = tuple((Move(root, r, 0, 1),) for r in range(num_ranks) if r != root)
    return Plan("broadcast", "naive", num_ranks, 1, steps, root)


def reduce(num_ranks: int, root: int = 0) -> Plan:
    """Every rank sends its whole tensor to the root, which adds: N-1 messages of n bytes."""
    check_size(num_ranks, root)
    steps = tuple((Move(r, root, 0, 1, reduce=True),) for r in range(num_ranks) if r != root)
    return Plan("reduce", "naive", num_ranks, 1, steps, root)


def scatter(num_ranks: int, root: int = 0) -> Plan:
    """The root sends rank r its chunk r: N-1 messages of n/N bytes. No algorithm moves fewer bytes."""
    check_size(num_ranks, root)
    steps = tuple((Move(root, r, r, r + 1),) for r in range(num_ranks) if r != root)
    return Plan("scatter", "naive", num_ranks, num_ranks, steps, root)


def gather(num_ranks: int, root: int = 0) -> Plan:
    """Rank r sends its chunk r to the root: N-1 messages of n/N bytes."""
    check_size(num_ranks, root)
    steps = tuple((Move(r, root, r, r + 1),) for r in range(num_ranks) if r != root)
    return Plan("gather", "naive", num_ranks, num_ranks, steps, root)


def all_reduce(num_ranks: int) -> Plan:
    """Reduce to rank 0, then broadcast: 2(N-1) messages of n bytes through one link."""
    steps = reduce(num_ranks).steps + broadcast(num_ranks).steps
    return Plan("all_reduce", "naive", num_ranks, 1, steps)


def all_gather(num_ranks: int) -> Plan:
    """Gather on rank 0, then send everybody everything."""
    everything: tuple[Step, ...] = tuple((Move(0, r, 0, num_ranks),) for r in range(1, num_ranks))
    return Plan("all_gather", "naive", num_ranks, num_ranks, gather(num_ranks).steps + everything)


def reduce_scatter(num_ranks: int) -> Plan:
    """Reduce the whole tensor on rank 0, then scatter it."""
    whole: tuple[Step, ...] = tuple((Move(r, 0, 0, num_ranks, reduce=True),) for r in range(1, num_ranks))
    return Plan("reduce_scatter", "naive", num_ranks, num_ranks, whole + scatter(num_ranks).steps)


def all_to_all(num_ranks: int) -> Plan:
    """Each rank in turn sends its chunks, one message at a time. Chunk s*N + d is what rank s has for rank d."""
    check_size(num_ranks)
    pairs = [(s, d) for s in range(num_ranks) for d in range(num_ranks) if s != d]
    steps = tuple((Move(s, d, s * num_ranks + d, s * num_ranks + d + 1),) for s, d in pairs)
    return Plan("all_to_all", "naive", num_ranks, num_ranks * num_ranks, steps)
