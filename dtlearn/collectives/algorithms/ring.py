"""The ring: every rank sends to its right neighbour and receives from its left, all at the same time.

After N-1 steps of reduce-scatter each rank owns one chunk of the sum; after N-1 steps of all-gather everybody has all
chunks. Each rank sends 2(N-1)/N of the tensor, which is the least that any all-reduce can do, whatever N is
(Patarasuk and Yuan, 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations"). The price is
latency: 2(N-1) messages in a row.
"""

from __future__ import annotations

from .plan import Move, Plan, check_size


def reduce_scatter(num_ranks: int) -> Plan:
    """Chunk c starts at rank c+1 and collects one more summand at every rank; it ends at rank c."""
    check_size(num_ranks)
    N, steps = num_ranks, []
    for k in range(N - 1):
        hops = [(r, (r + 1) % N, (r - k - 1) % N) for r in range(N)]  # from, to, which chunk
        steps.append(tuple(Move(src, dst, c, c + 1, reduce=True) for src, dst, c in hops))
    return Plan("reduce_scatter", "ring", N, N, tuple(steps))


def all_gather(num_ranks: int) -> Plan:
    """Rank r begins with chunk r; in each step it passes on the chunk that it has just received."""
    check_size(num_ranks)
    N, steps = num_ranks, []
    for k in range(N - 1):
        hops = [(r, (r + 1) % N, (r - k) % N) for r in range(N)]  # from, to, which chunk
        steps.append(tuple(Move(src, dst, c, c + 1) for src, dst, c in hops))
    return Plan("all_gather", "ring", N, N, tuple(steps))


def all_reduce(num_ranks: int) -> Plan:
    """Reduce-scatter, then all-gather.

    Each chunk is summed once, in one order around the ring, and then copied, so all ranks end with
    the same bits.
    """
    steps = reduce_scatter(num_ranks).steps + all_gather(num_ranks).steps
    return Plan("all_reduce", "ring", num_ranks, num_ranks, steps)


def all_to_all(num_ranks: int) -> Plan:
    """In step k every rank sends to the one k places to its right: N-1 steps in which all links work.

    Chunk s*N + d is what rank s has for rank d.
    """
    check_size(num_ranks)
    N, steps = num_ranks, []
    for k in range(1, N):
        pairs = [(s, (s + k) % N) for s in range(N)]
        steps.append(tuple(Move(s, d, s * N + d, s * N + d + 1) for s, d in pairs))
    return Plan("all_to_all", "ring", N, N * N, tuple(steps))
