import pytest

from dtlearn.pipeline_parallel.partition.boundaries import check_boundaries, stage_costs
from dtlearn.pipeline_parallel.partition.naive import by_count, greedy


def test_equal_numbers_of_links():
    assert by_count(6, 3) == (0, 2, 4, 6)
    assert by_count(7, 3) == (0, 3, 5, 7)
    assert by_count(3, 3) == (0, 1, 2, 3)
    assert by_count(5, 1) == (0, 5)


def test_greedy_fills_up_to_the_mean_and_the_last_stage_has_what_is_left():
    assert greedy([2, 2, 2, 2], 2) == (0, 2, 4)
    assert greedy([3, 2, 3, 2, 3, 2], 3) == (0, 2, 4, 6)
    costs = [4, 4, 4, 4, 4, 4]
    assert stage_costs(costs, greedy(costs, 4)) == [4, 4, 4, 12]  # two links of 4 are over the mean of 6


def test_greedy_leaves_a_link_for_every_stage():
    for costs in ([0, 0, 0, 0], [9, 0, 0, 0], [0, 0, 0, 9], [1, 1, 1, 1]):
        for num_stages in range(1, 5):
            check_boundaries(greedy(costs, num_stages), 4)


@pytest.mark.parametrize("costs", [[1, -2, 3], [1, float("nan"), 3]])
def test_a_cost_below_zero_is_refused(costs):
    with pytest.raises(ValueError, match=r"link 1 costs (-2|nan)"):
        greedy(costs, 2)


def test_more_stages_than_links_are_refused():
    with pytest.raises(ValueError, match="4 stages need 4 links or more"):
        greedy([1, 2, 3], 4)
    with pytest.raises(ValueError, match="4 stages need 4 links or more"):
        by_count(3, 4)
