"""The type: what it answers agrees with the elements one by one, and the validator finds what is wrong."""

from dataclasses import replace

import pytest

from dtlearn.zero import Row, Slice, plan_flat, plan_per_parameter, plan_whole_tensors, validate_partition

SHAPES = [(3, 4), (3,), (0,), (7, 1), (1, 1), (2, 2, 2)]
SIZES = [12, 3, 0, 7, 1, 8]


def partitions():
    for n in range(1, 6):
        yield plan_flat(SIZES, n)
        yield plan_flat(SIZES, n, 9)
        yield plan_flat(SIZES, n, kinds=["a", "b", "b", "a", "a", "b"])
        yield plan_per_parameter(SHAPES, n)
        yield plan_whole_tensors(SIZES, n)
        yield plan_whole_tensors(SIZES, n, kinds=["a", "b", "b", "a", "a", "b"])


@pytest.mark.parametrize("partition", list(partitions()))
def test_each_element_is_owned_once_and_lies_where_the_slices_and_the_table_say(partition):
    validate_partition(partition)
    owners = {(p, i): [] for p, size in enumerate(SIZES) for i in range(size)}
    for rank in range(partition.num_ranks):
        for bucket in partition.buckets:
            end = 0
            for piece in bucket.slices(rank):
                assert piece.rank == rank and end <= piece.offset < piece.offset + piece.numel <= bucket.shard
                end = piece.offset + piece.numel
                place = bucket.offsets[bucket.parameters.index(piece.parameter)] + piece.start
                assert place == rank * bucket.shard + piece.offset  # in the buffer, by either way
                for i in range(piece.start, piece.stop):
                    owners[piece.parameter, i].append(rank)
        assert partition.owned(rank) + sum(b.padding(rank) for b in partition.buckets) == partition.shard
    assert all(len(ranks) == 1 for ranks in owners.values())
    assert partition.numel == partition.num_ranks * partition.shard == sum(SIZES) + partition.padding
    for number, size in enumerate(SIZES):
        pieces = partition.owners(number)
        assert [piece.start for piece in pieces] + [size] == [0, *[piece.stop for piece in pieces]]
    table = partition.table()
    assert all(row.start < row.stop for row in table)
    for bucket in partition.buckets:
        rows = [row for row in table if row.bucket == bucket.index]
        ends = [row.offset + row.stop - row.start for row in rows]
        assert [row.offset for row in rows] + [bucket.numel] == [0, *ends]  # without gaps
        assert all(r.offset // bucket.shard == r.rank for r in rows)
    assert sum(row.stop - row.start for row in table if row.parameter is None) == partition.padding


def test_the_picture_at_the_top_of_the_file():
    partition = plan_flat([6, 3], 2)
    assert partition.slices(0) == (Slice(0, 0, 0, 5, 0),)
    assert partition.slices(1) == (Slice(1, 0, 5, 6, 0), Slice(1, 1, 0, 3, 1))
    assert partition.owners(0) == (Slice(0, 0, 0, 5, 0), Slice(1, 0, 5, 6, 0))
    assert partition.table() == [
        Row(0, 0, 0, 0, 5, 0),
        Row(0, 1, 0, 5, 6, 5),
        Row(0, 1, 1, 0, 3, 6),
        Row(0, 1, None, 0, 1, 9),
    ]
    assert (partition.numel, partition.shard, partition.padding) == (10, 5, 1)


def with_bucket(**changes):
    """The partition of [6, 3] on 2 ranks in two buckets, with changes to the second."""
    partition = plan_flat([6, 3, 4], 2, 6)
    first, second = partition.buckets
    return replace(partition, buckets=(first, replace(second, **changes)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, ""),
        ({"index": 0}, "bucket 0 is sent at place 1"),
        ({"num_ranks": 3}, "bucket 1 has 3 shards, for 2 ranks"),
        ({"parameters": (1, 0), "sizes": (3, 6)}, "parameter 0 is in buckets 0 and 1: it has two owners"),
        ({"parameters": (1,), "sizes": (3,), "offsets": (0,)}, "parameter 2 is in no bucket"),
        ({"sizes": (3, 5)}, "bucket 1 has 5 elements of parameter 2"),
        ({"parameters": (1, 3)}, "bucket 1 has 4 elements of parameter 3"),
        ({"offsets": (0, 2)}, "parameters 1 and 2 overlap in bucket 1, at element 2"),
        ({"shard": 3}, "bucket 1 has 6 elements, but parameter 2 ends at 7"),
    ],
)
def test_a_planted_fault_is_named(changes, message):
    if not message:
        return validate_partition(with_bucket())
    with pytest.raises(ValueError, match=message):
        validate_partition(with_bucket(**changes))
