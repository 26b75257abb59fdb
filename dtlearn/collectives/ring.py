"""The ring: every rank sends to its right neighbour and receives from its left, all at the same time.

After N-1 steps of reduce-scatter each rank owns one chunk of the sum; after N-1 steps of all-gather everybody has all
chunks. Each rank sends 2(N-1)/N of the tensor, which is the least that any all-reduce can do, whatever N is
(Patarasuk and Yuan, 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations"). The price is
latency: 2(N-1) messages in a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from .plan import Move, Plan, Step, check_size


def reduce_scatter(num_ranks: int) -> Plan:
    """Chunk c starts at rank c+1 and collects one more summand at every rank, until it arrives, complete, at rank c."""
    check_size(num_ranks)
    return Plan("reduce_scatter", "ring", num_ranks, num_ranks, tuple(reduce_scatter_steps(range(num_ranks))))


def all_gather(num_ranks: int) -> Plan:
    """Rank r begins with chunk r; in every step each passes on the chunk that it has just received."""
    check_size(num_ranks)
    return Plan("all_gather", "ring", num_ranks, num_ranks, tuple(all_gather_steps(range(num_ranks))))


def all_reduce(num_ranks: int) -> Plan:
    """Reduce-scatter, then all-gather.

    Every chunk is added up in one place and then copied, so all ranks end with the same bits.
    """
    steps = reduce_scatter(num_ranks).steps + all_gather(num_ranks).steps
    return Plan("all_reduce", "ring", num_ranks, num_ranks, steps)


def all_to_all(num_ranks: int) -> Plan:
    """In step k every rank sends to the one k places to its right: N-1 steps in which all links work.

    Chunk s*N + d is what rank s has for rank d.
    """
    check_size(num_ranks)
    N = num_ranks
    steps = tuple(tuple(_chunk(r, (r + k) % N, r * N + (r + k) % N) for r in range(N)) for k in range(1, N))
    return Plan("all_to_all", "ring", N, N * N, steps)


def reduce_scatter_steps(ranks: Sequence[int], base: int = 0, width: int = 1) -> list[Step]:
    """Steps among some ranks: the i-th of them ends with `width` chunks, from `base + i*width` on."""
    N, steps = len(ranks), list[Step]()
    for k in range(N - 1):
        parts = [(i - k - 1) % N for i in range(N)]  # that the i-th rank passes on
        steps.append(tuple(_hop(ranks, i, parts[i], base, width, reduce=True) for i in range(N)))
    return steps


def all_gather_steps(ranks: Sequence[int], base: int = 0, width: int = 1) -> list[Step]:
    """Steps among some ranks: the i-th of them begins with `width` chunks, from `base + i*width` on."""
    N, steps = len(ranks), list[Step]()
    for k in range(N - 1):
        parts = [(i - k) % N for i in range(N)]
        steps.append(tuple(_hop(ranks, i, parts[i], base, width, reduce=False) for i in range(N)))
    return steps


def _hop(ranks: Sequence[int], i: int, part: int, base: int, width: int, *, reduce: bool) -> Move:
    """The i-th rank passes a part to its right neighbour."""
    first = base + part * width
    return Move(ranks[i], ranks[(i + 1) % len(ranks)], first, first + width, reduce)


def _chunk(src: int, dst: int, chunk: int) -> Move:
    return Move(src, dst, chunk, chunk + 1)
