"""Chunks and moves."""

from itertools import pairwise

import pytest

from dtlearn.collectives import ring
from dtlearn.collectives.algorithms.plan import Move, check_size, chunk_bounds, side_by_side, spans


@pytest.mark.parametrize("numel", [0, 1, 3, 10, 1000])
@pytest.mark.parametrize("num_chunks", [1, 2, 3, 7])
def test_chunks_cover_the_tensor_and_differ_by_one_at_most(numel, num_chunks):
    bounds = chunk_bounds(numel, num_chunks)
    sizes = [b - a for a, b in pairwise(bounds)]
    assert (bounds[0], bounds[-1], len(sizes)) == (0, numel, num_chunks)
    assert max(sizes) - min(sizes) <= 1


def test_spans_join_neighbours():
    assert spans([3, 0, 1]) == [(0, 2), (3, 4)]
    assert spans([]) == []


def test_a_move_and_a_plan_can_be_read():
    assert str(Move(0, 1, 2, 3)) == "0->1:2"
    assert str(Move(0, 1, 2, 5, reduce=True)) == "0+>1:2-4"
    assert str(ring.all_reduce(2)).splitlines() == [
        "all_reduce, ring, 2 ranks, 2 chunks",
        "  1  0+>1:1  1+>0:0",
        "  2  0->1:0  1->0:1",
    ]


def test_plans_of_disjoint_ranks_run_side_by_side():
    a, b = (Move(0, 1, 0, 1),), (Move(2, 3, 0, 1),)
    assert side_by_side([[a, a], [b]]) == [a + b, a]


def test_a_group_and_a_root_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="at least 1 rank"):
        check_size(0)
    with pytest.raises(ValueError, match="0 to 3; got 4"):
        check_size(4, 4)
