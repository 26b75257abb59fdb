from tests.pipeline_parallel.grids import grid


def test_one_rank_works_at_a_time():
    assert (
        grid("naive", 3, 2)
        == """
0F0 .   .   .   .   0B0 0F1 .   .   .   .   0B1
.   1F0 .   .   1B0 .   .   1F1 .   .   1B1 .
.   .   2F0 2B0 .   .   .   .   2F1 2B1 .   .
"""
    )
