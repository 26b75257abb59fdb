"""Who owns which elements of the parameters: the type that every way of dividing them gives, and its validator.

Parameters lie one after the other in a flat buffer, their *bucket*. A bucket consists of N *shards* of one length, and
rank r owns shard r. What is left of the buffer is *padding*. The part of one parameter in a rank's shard is a *piece*.

    bucket 0, N = 2    | w w w w w | w b b b . |      parameter w has 6 elements, b has 3, and one is padding
                       | rank 0    | rank 1    |      rank 0 owns w[0:5], rank 1 owns w[5:6] and b[0:3]

Ways of dividing differ in the parameters of a bucket, in their offsets, and in the length of a shard, and in nothing
else; so the same two collectives serve them all: an all-gather of the shards, a reduce-scatter into them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Slice(NamedTuple):
    """Elements `start` to `stop` (exclusive) of a parameter as one vector, which one rank owns: a piece.

    Attributes:
        rank: who owns them.
        parameter: number of the parameter.
        start, stop: elements.
        offset: of the first one in the rank's shard.
    """

    rank: int
    parameter: int
    start: int
    stop: int
    offset: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return self.stop - self.start


class Row(NamedTuple):
    """A line of `Partition.table`, for tables and drawings: what a stretch of a bucket's buffer holds.

    Attributes:
        bucket, rank: where it is.
        parameter: number of the parameter; None: padding.
        start, stop: elements of the parameter; of padding, 0 and its length.
        offset: of the first element in the bucket's buffer.
    """

    bucket: int
    rank: int
    parameter: int | None
    start: int
    stop: int
    offset: int


@dataclass(frozen=True)
class Bucket:
    """Parameters in one flat buffer of `num_ranks` shards.

    Attributes:
        index: place of this bucket in the order in which buckets are sent, the same on every rank.
        parameters: numbers of its parameters.
        sizes: elements of each of them.
        offsets: of the first element of each in the buffer.
        shard: elements of a shard.
        num_ranks: number of shards.
    """

    index: int
    parameters: tuple[int, ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    shard: int
    num_ranks: int

    @property
    def numel(self) -> int:
        """Elements of the buffer, padding included."""
        return self.shard * self.num_ranks

    def slices(self, rank: int) -> tuple[Slice, ...]:
        """List what a rank owns, as it lies in its shard; parameters of which it owns nothing are left out."""
        first, end = rank * self.shard, (rank + 1) * self.shard
        slices = []
        for number, size, offset in zip(self.parameters, self.sizes, self.offsets, strict=True):
            start, stop = max(first, offset), min(end, offset + size)
            if start < stop:
                slices.append(Slice(rank, number, start - offset, stop - offset, start - first))
        return tuple(sorted(slices, key=lambda piece: piece.offset))

    def padding(self, rank: int) -> int:
        """Elements of a rank's shard that belong to no parameter."""
        return self.shard - sum(piece.numel for piece in self.slices(rank))


@dataclass(frozen=True)
class Partition:
    """Every element of every parameter, and the rank that owns it.

    Attributes:
        sizes: elements of each parameter, by its number.
        num_ranks: N.
        buckets: in the order in which they are sent.
    """

    sizes: tuple[int, ...]
    num_ranks: int
    buckets: tuple[Bucket, ...]

    def slices(self, rank: int) -> tuple[Slice, ...]:
        """List what a rank owns, bucket by bucket."""
        return tuple(piece for bucket in self.buckets for piece in bucket.slices(rank))

    def owners(self, parameter: int) -> tuple[Slice, ...]:
        """The pieces of a parameter, in the order of its elements."""
        pieces = (piece for rank in range(self.num_ranks) for piece in self.slices(rank))
        return tuple(sorted((p for p in pieces if p.parameter == parameter), key=lambda piece: piece.start))

    def owned(self, rank: int) -> int:
        """Elements of parameters that a rank owns."""
        return sum(piece.numel for piece in self.slices(rank))

    @property
    def shard(self) -> int:
        """Elements that each rank stores: its shards of all buckets, padding included."""
        return sum(bucket.shard for bucket in self.buckets)

    @property
    def numel(self) -> int:
        """Elements of all buffers, padding included."""
        return sum(bucket.numel for bucket in self.buckets)

    @property
    def padding(self) -> int:
        """Elements of all buffers that belong to no parameter."""
        return self.numel - sum(self.sizes)

    def table(self) -> list[Row]:
        """Every stretch of every buffer, padding too, in the order in which they lie there."""
        rows = []
        for bucket in self.buckets:
            for rank in range(self.num_ranks):
                first = place = rank * bucket.shard
                for piece in (*bucket.slices(rank), None):
                    start = first + (bucket.shard if piece is None else piece.offset)
                    if start > place:
                        rows.append(Row(bucket.index, rank, None, 0, start - place, place))
                    if piece is not None:
                        rows.append(Row(bucket.index, rank, piece.parameter, piece.start, piece.stop, start))
                        place = start + piece.numel
        return rows


def validate_partition(partition: Partition) -> None:
    """Check that a partition, from wherever it comes, gives each element to exactly one rank.

    Raises:
        ValueError: it does not, and why.
    """
    sizes, seen = partition.sizes, dict[int, int]()
    for place, bucket in enumerate(partition.buckets):
        if bucket.index != place:
            raise ValueError(f"bucket {bucket.index} is sent at place {place}: ranks would pair other buckets")
        if bucket.num_ranks != partition.num_ranks:
            raise ValueError(f"bucket {place} has {bucket.num_ranks} shards, for {partition.num_ranks} ranks")
        end, before = 0, None
        for offset, size, number in sorted(zip(bucket.offsets, bucket.sizes, bucket.parameters, strict=True)):
            if not 0 <= number < len(sizes) or size != sizes[number]:
                raise ValueError(f"bucket {place} has {size} elements of parameter {number}: there are no such")
            if number in seen:
                raise ValueError(f"parameter {number} is in buckets {seen[number]} and {place}: it has two owners")
            if offset < end:
                raise ValueError(f"parameters {before} and {number} overlap in bucket {place}, at element {offset}")
            seen[number], end, before = place, offset + size, number
        if end > bucket.numel:
            raise ValueError(
                f"bucket {place} has {bucket.numel} elements, but parameter {before} ends at {end}: nobody owns the end"
            )
    if missing := sorted(set(range(len(sizes))) - seen.keys()):
        raise ValueError(f"parameter {missing[0]} is in no bucket: nobody would update it")


def check_sizes(sizes: Sequence[int], num_ranks: int) -> None:
    """Check what every way of dividing needs.

    Raises:
        ValueError: fewer than one rank, or a negative size.
    """
    if num_ranks < 1:
        raise ValueError(f"num_ranks must be 1 or more, got {num_ranks}")
    if any(size < 0 for size in sizes):
        raise ValueError(f"a parameter has 0 elements or more, got {min(sizes)}")
