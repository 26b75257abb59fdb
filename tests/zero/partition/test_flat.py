"""Flat partitions: even to within the padding, buckets closed at the cap, kinds apart."""

import pytest

from dtlearn.zero import plan_flat


@pytest.mark.parametrize("num_ranks", range(1, 9))
def test_shards_are_equal_and_padding_is_less_than_n(num_ranks):
    for total in range(12):
        partition = plan_flat([total], num_ranks)
        assert partition.shard == -(-total // num_ranks) and 0 <= partition.padding < num_ranks
    assert [plan_flat([1], num_ranks).owned(r) for r in range(num_ranks)] == [1] + [0] * (num_ranks - 1)


def test_buckets_are_closed_by_the_cap_and_never_mix_kinds():
    def parameters(*args, **options):
        return [bucket.parameters for bucket in plan_flat(*args, **options).buckets]

    assert parameters([4, 4, 4, 9, 1], 2) == [(0, 1, 2, 3, 4)]
    assert parameters([4, 4, 4, 9, 1], 2, 8) == [(0, 1), (2, 3), (4,)]
    assert parameters([4, 4, 4, 9, 1], 2, 1) == [(0,), (1,), (2,), (3,), (4,)]
    assert parameters([4, 4, 4, 9, 1], 2, kinds="abaab") == [(0, 2, 3), (1, 4)]
    assert parameters([4, 4, 4, 9, 1], 2, 8, kinds="abaab") == [(0, 2), (1, 4), (3,)]
    assert parameters([], 2) == []


def test_what_comes_later_leaves_earlier_buckets_alone():
    before = plan_flat([5, 2, 7], 3, 6, kinds=[0, 0, 0])
    after = plan_flat([5, 2, 7, 1, 9], 3, 6, kinds=[0, 0, 0, 1, 1])
    assert after.buckets[: len(before.buckets)] == before.buckets


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([4], 0), "num_ranks must be 1 or more, got 0"),
        (([4, -1], 2), "0 elements or more, got -1"),
        (([4], 2, 0), "a cap above 0; got .* and 0"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        plan_flat(*arguments)
    with pytest.raises(ValueError, match="expected 1 kinds"):
        plan_flat([4], 2, kinds="ab")
