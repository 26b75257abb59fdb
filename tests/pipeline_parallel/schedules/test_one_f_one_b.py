from dtlearn.pipeline_parallel import make_schedule
from tests.pipeline_parallel.grids import grid


def test_one_forward_one_backward():
    assert (
        grid("1f1b", 3, 5)
        == """
0F0 0F1 0F2 .   .   0B0 0F3 0B1 0F4 0B2 .   0B3 .   0B4
.   1F0 1F1 .   1B0 1F2 1B1 1F3 1B2 1F4 1B3 .   1B4 .
.   .   2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2F4 2B4 .   .
"""
    )


def test_with_backward_passes_twice_as_long():
    assert (
        grid("1f1b", 2, 3, backward=2)
        == """
0F0 0F1 .   .   0B0 =   0F2 0B1 =   .   0B2 =
.   1F0 1B0 =   1F1 1B1 =   1F2 1B2 =   .   .
"""
    )


def test_with_fewer_microbatches_than_ranks_it_is_nearly_gpipe():
    assert (
        grid("1f1b", 4, 2)
        == """
0F0 0F1 .   .   .   .   .   0B0 .   0B1
.   1F0 1F1 .   .   .   1B0 .   1B1 .
.   .   2F0 2F1 .   2B0 .   2B1 .   .
.   .   .   3F0 3B0 3F1 3B1 .   .   .
"""
    )
    assert make_schedule("1f1b", 4, 2).orders[:3] == make_schedule("gpipe", 4, 2).orders[:3]
