from tests.pipeline_parallel.grids import grid


def test_all_forward_then_all_backward():
    assert (
        grid("gpipe", 3, 4)
        == """
0F0 0F1 0F2 0F3 .   .   .   .   0B0 0B1 0B2 0B3
.   1F0 1F1 1F2 1F3 .   .   1B0 1B1 1B2 1B3 .
.   .   2F0 2F1 2F2 2F3 2B0 2B1 2B2 2B3 .   .
"""
    )


def test_one_rank_and_one_microbatch_are_no_special_cases():
    assert grid("gpipe", 1, 2) == "\n0F0 0F1 0B0 0B1\n"
    assert (
        grid("gpipe", 2, 1)
        == """
0F0 .   .   0B0
.   1F0 1B0 .
"""
    )
