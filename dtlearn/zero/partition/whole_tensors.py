"""Whole tensors: each parameter belongs to one rank, and the ranks' loads are balanced as well as that allows.

No cut goes through a parameter, as an optimizer needs that looks at a whole matrix. One large parameter, such as an
embedding, makes its owner the rank with the most to store, however many ranks there are.

Sources: PyTorch's `ZeroRedundancyOptimizer`, which sorts by size and gives each parameter to the rank with the fewest
elements; Graham, "Bounds on multiprocessing timing anomalies", 1969: the largest load is then at most 4/3 of the best
possible.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from .partition import Bucket, Partition, check_sizes


def plan_whole_tensors(
    sizes: Sequence[int],
    num_ranks: int,
    *,
    costs: Sequence[float] | None = None,
    kinds: Sequence[Hashable] | None = None,
) -> Partition:
    """Give each parameter, the most costly first, to the rank with the least cost so far.

    Args:
        sizes: elements of each parameter.
        num_ranks: N.
        costs: what each parameter costs its owner, such as the FLOPs of its update; None: its elements.
        kinds: what each parameter is (dtype, device); each kind has a bucket. None: all alike.

    Returns:
        The partition. A shard is as long as the elements of the rank that has most; the others have padding. (PyTorch's
        has none: it broadcasts each rank's tensors, one call after the other.)

    Raises:
        ValueError: fewer than one rank, a negative size or cost, or lengths that differ.
    """
    check_sizes(sizes, num_ranks)
    costs = sizes if costs is None else costs
    kinds = [None] * len(sizes) if kinds is None else kinds
    if not len(costs) == len(kinds) == len(sizes) or any(cost < 0 for cost in costs):
        raise ValueError(f"expected a cost of 0 or more and a kind for each of {len(sizes)} parameters")
    loads = [0.0] * num_ranks  # over all kinds
    buckets = []
    for index, kind in enumerate(dict.fromkeys(kinds)):
        numbers = [number for number in range(len(sizes)) if kinds[number] == kind]
        owned: list[list[int]] = [[] for _ in range(num_ranks)]
        for number in sorted(numbers, key=lambda number: costs[number], reverse=True):
            rank = loads.index(min(loads))
            owned[rank].append(number)
            loads[rank] += costs[number]
        buckets.append(_bucket(index, owned, sizes))
    return Partition(tuple(sizes), num_ranks, tuple(buckets))


def _bucket(index: int, owned: list[list[int]], sizes: Sequence[int]) -> Bucket:
    shard = max(sum(sizes[number] for number in numbers) for numbers in owned)
    offsets = dict[int, int]()
    for rank, numbers in enumerate(owned):
        place = rank * shard
        for number in numbers:
            offsets[number] = place
            place += sizes[number]
    own = tuple(sizes[number] for number in offsets)
    return Bucket(index, tuple(offsets), own, tuple(offsets.values()), shard, len(owned))
