import pytest

from dtlearn.pipeline_parallel.partition.boundaries import check_boundaries, check_num_stages, imbalance, stage_costs

COSTS = [1, 2, 2, 2, 2, 6]


def test_the_cost_of_each_stage_and_how_far_the_slowest_is_from_the_mean():
    assert stage_costs(COSTS, (0, 2, 4, 6)) == [3, 4, 8]
    assert imbalance(COSTS, (0, 2, 4, 6)) == 8 / 5
    assert imbalance(COSTS, (0, 3, 5, 6)) == 6 / 5
    assert imbalance([2, 2, 4], (0, 2, 3)) == 1


@pytest.mark.parametrize(
    ("boundaries", "message"),
    [
        ((0, 2, 5), r"start with 0 and end with the number of links, 6; got \(0, 2, 5\)"),
        ((1, 6), "start with 0"),
        ((0,), "start with 0"),
        ((), "start with 0"),
        ((0, 3, 3, 6), r"stage 1 would be links 3 to 3 \(exclusive\): it has no link"),
        ((0, 4, 3, 6), "stage 1 would be links 4 to 3"),
    ],
)
def test_what_is_no_partition_is_refused(boundaries, message):
    with pytest.raises(ValueError, match=message):
        check_boundaries(boundaries, 6)
    with pytest.raises(ValueError, match=message):
        stage_costs(COSTS, boundaries)


def test_more_stages_than_links_are_refused_with_both_numbers():
    check_num_stages(6, 6)
    with pytest.raises(ValueError, match="7 stages need 7 links or more, but the model has 6: use at most 6 stages"):
        check_num_stages(6, 7)
    with pytest.raises(ValueError, match="num_stages must be 1 or more, got 0"):
        check_num_stages(6, 0)


def test_links_without_any_cost_cannot_be_balanced():
    with pytest.raises(ValueError, match="all links together cost 0"):
        imbalance([0, 0], (0, 1, 2))
