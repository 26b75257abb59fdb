"""Whole tensors: greedily balanced by their elements, or by another cost."""

import pytest

from dtlearn.zero import plan_whole_tensors

SIZES = [12, 3, 40, 7, 7, 1, 8, 22]


def test_the_largest_first_to_the_rank_with_the_least():
    """That it is torch's choice is shown in `test_zero1.py`, where torch's optimizer runs."""
    partition = plan_whole_tensors(SIZES, 3)
    assert [[piece.parameter for piece in partition.slices(rank)] for rank in range(3)] == [
        [2],
        [7, 4, 5],
        [0, 6, 3, 1],
    ]


def test_every_parameter_has_one_owner_and_the_busiest_rank_says_how_long_a_shard_is():
    for n in range(1, 12):
        partition = plan_whole_tensors(SIZES, n)
        assert all(len(partition.owners(number)) == 1 for number in range(len(SIZES)))
        assert partition.shard == max(partition.owned(rank) for rank in range(n)) >= max(SIZES)
    assert partition.shard == 40 and partition.padding == 11 * 40 - sum(SIZES)  # one large tensor decides


def test_by_cost():
    """Two costly small matrices are apart; by elements they would be together."""
    sizes, costs = [8, 5, 4], [1.0, 60.0, 50.0]
    by_size, by_cost = plan_whole_tensors(sizes, 2), plan_whole_tensors(sizes, 2, costs=costs)
    assert [[p.parameter for p in by_size.slices(rank)] for rank in range(2)] == [[0], [1, 2]]
    assert [[p.parameter for p in by_cost.slices(rank)] for rank in range(2)] == [[1], [2, 0]]


def test_kinds_have_buckets_and_share_the_load():
    partition = plan_whole_tensors([10, 9, 8], 2, kinds="aba")
    assert [bucket.parameters for bucket in partition.buckets] == [(0, 2), (1,)]
    assert [partition.owners(number)[0].rank for number in range(3)] == [0, 1, 1]


def test_bad_input():
    with pytest.raises(ValueError, match="a cost of 0 or more and a kind for each of 2 parameters"):
        plan_whole_tensors([1, 2], 2, costs=[1])
    with pytest.raises(ValueError, match="a cost of 0 or more"):
        plan_whole_tensors([1, 2], 2, costs=[1, -1])
    with pytest.raises(ValueError, match="num_ranks"):
        plan_whole_tensors([1, 2], 0)
