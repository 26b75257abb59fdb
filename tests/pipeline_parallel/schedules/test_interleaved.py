import pytest

from dtlearn.pipeline_parallel import make_schedule, simulate
from tests.pipeline_parallel.grids import grid


def test_two_chunks_on_two_ranks():
    assert (
        grid("interleaved", 2, 4)
        == """
0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 .   2B2 .   2B3 0B2 0B3
.   1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3 .
"""
    )


def test_three_chunks_on_two_ranks():
    assert make_schedule("interleaved", 2, 2, chunks=3).placement == (0, 1, 0, 1, 0, 1)
    assert (
        grid("interleaved", 2, 2, chunks=3)
        == """
0F0 0F1 2F0 2F1 4F0 4F1 .   4B0 .   4B1 2B0 2B1 0B0 0B1
.   1F0 1F1 3F0 3F1 5F0 5B0 5F1 5B1 3B0 3B1 1B0 1B1 .
"""
    )


@pytest.mark.parametrize(("ranks", "microbatches"), [(1, 3), (2, 4), (4, 8)])
def test_with_one_chunk_it_is_1f1b_with_more_warm_up(ranks, microbatches):
    """2(p-r-1) passes before the first pair, where 1F1B has p-r-1: as long a step, and more memory."""
    looped, plain = (
        make_schedule("interleaved", ranks, microbatches, chunks=1),
        make_schedule("1f1b", ranks, microbatches),
    )
    assert looped.orders[-1] == plain.orders[-1]
    assert simulate(looped).makespan == simulate(plain).makespan
    warmups = [[str(action)[1] for action in order].index("B") for order in looped.orders]
    assert warmups == [2 * (ranks - 1 - rank) + 1 for rank in range(ranks)]
