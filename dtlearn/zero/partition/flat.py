"""Flat: parameters one after the other in a buffer, which is cut into N shards of one length, wherever the cuts fall.

Every rank owns the same number of elements, to within the padding. A cut can go through a parameter.

Sources: ZeRO, 1910.02054, section 5.1, divides the optimizer's states into N equal partitions; DeepSpeed, Megatron-LM's
distributed optimizer and FSDP1 (2304.11277, section 3.2.1, "FlatParameter") do it on flat buffers like these.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate

from .partition import Bucket, Partition, check_sizes


def plan_flat(
    sizes: Sequence[int],
    num_ranks: int,
    cap: int | None = None,
    *,
    kinds: Sequence[Hashable] | None = None,
) -> Partition:
    """Put parameters into buckets in their order, and pad each bucket to a multiple of `num_ranks`.

    A bucket is closed as soon as it holds `cap` elements or more, so it can be larger than that by
    one parameter.

    Args:
        sizes: elements of each parameter, in the order of `model.parameters()`.
        num_ranks: N.
        cap: elements that close a bucket; None: one bucket for each kind.
        kinds: what each parameter is (dtype, device); buckets never mix kinds. None: all alike.

    Returns:
        The partition. Each bucket has fewer than N elements of padding, at its end.

    Raises:
        ValueError: fewer than one rank, a negative size, a cap below 1, or another number of kinds.
    """
    check_sizes(sizes, num_ranks)
    kinds = [None] * len(sizes) if kinds is None else kinds
    if len(kinds) != len(sizes) or (cap is not None and cap < 1):
        raise ValueError(f"expected {len(sizes)} kinds, and a cap above 0; got {kinds} and {cap}")
    open_buckets, members = dict[Hashable, list[int]](), list[list[int]]()
    for number, kind in enumerate(kinds):
        if kind not in open_buckets:
            open_buckets[kind] = []
            members.append(open_buckets[kind])
        open_buckets[kind].append(number)
        if cap is not None and sum(sizes[m] for m in open_buckets[kind]) >= cap:
            del open_buckets[kind]
    buckets = [_bucket(index, numbers, sizes, num_ranks) for index, numbers in enumerate(members)]
    return Partition(tuple(sizes), num_ranks, tuple(buckets))


def _bucket(index: int, numbers: list[int], sizes: Sequence[int], num_ranks: int) -> Bucket:
    own = tuple(sizes[number] for number in numbers)
    offsets = tuple(accumulate(own, initial=0))[:-1]
    shard = -(-sum(own) // num_ranks)  # rounded up
    return Bucket(index, tuple(numbers), own, offsets, shard, num_ranks)
