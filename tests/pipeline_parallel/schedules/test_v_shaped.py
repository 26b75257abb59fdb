from dtlearn.pipeline_parallel import make_schedule
from tests.pipeline_parallel.grids import grid


def test_zbv_goes_down_the_ranks_and_up_again():
    assert make_schedule("zbv", 2, 3).placement == (0, 1, 1, 0)
    assert (
        grid("zbv", 2, 3)
        == """
0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2 .
.   1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2
"""
    )


def test_zbv_with_few_microbatches_leaves_out_those_that_do_not_exist():
    assert (
        grid("zbv", 2, 1)
        == """
0F0 .   .   3F0 3I0 3W0 .   .   0I0 0W0
.   1F0 2F0 .   .   2I0 2W0 1I0 1W0 .
"""
    )
