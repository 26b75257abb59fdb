import pytest

from dtlearn.pipeline_parallel import StageTimes, make_schedule, simulate
from tests.pipeline_parallel.grids import grid


def test_v_half_begins_a_micro_batch_every_six_clocks():
    assert (
        grid("v_half", 2, 3)
        == """
0F0 .   .   3F0 0F1 3I0 3W0 3F1 0F2 .   0I0 3I1 0W0 3F2 3W1 .   0I1 3I2 0W1 3W2 .   0I2 0W2
.   1F0 2F0 .   .   1F1 2F1 2I0 2W0 1I0 1W0 1F2 2F2 2I1 2W1 1I1 1W1 .   2I2 2W2 1I2 1W2 .
"""
    )


def test_v_min_frees_a_micro_batch_as_soon_as_it_can():
    assert (
        grid("v_min", 2, 3)
        == """
0F0 .   .   3F0 3I0 3W0 0F1 0I0 0W0 3F1 3I1 3W1 0F2 0I1 0W1 3F2 3I2 3W2 .   0I2 0W2
.   1F0 2F0 .   .   2I0 1I0 1F1 2F1 2W0 1W0 2I1 1I1 1F2 2F2 2W1 1W1 2I2 1I2 2W2 1W2
"""
    )


@pytest.mark.parametrize("num_ranks", range(1, 10))
def test_memory_is_what_the_paper_says(num_ranks):
    """In micro-batches of a whole rank: (p + 2) // 2 and (p + 4) // 3; a stage is half a rank's."""
    p, m = num_ranks, 4 * num_ranks
    assert max(timeline("v_half", p, m).peak_live) == 2 * ((p + 2) // 2)
    assert max(timeline("v_min", p, m).peak_live) == 2 * ((p + 4) // 3)
    assert max(timeline("zbv", p, m).peak_live) == 2 * p


@pytest.mark.parametrize("num_ranks", range(4, 10))
def test_idle_time_is_about_two_thirds_of_1f1b_s(num_ranks):
    idle = {name: max(timeline(name, num_ranks, 4 * num_ranks).idle) for name in ("1f1b", "v_half", "v_min")}
    assert 0.5 < idle["v_half"] / idle["1f1b"] <= 2 / 3 and 0.6 < idle["v_min"] / idle["1f1b"] < 0.71


def timeline(name, num_ranks, num_microbatches):
    schedule = make_schedule(name, num_ranks, num_microbatches)
    return simulate(schedule, StageTimes.equal_parts(schedule.num_stages // num_ranks))
