"""The dynamic program finds what trying all partitions finds, and the greedy one does not."""

import itertools
import random

import pytest

from dtlearn.pipeline_parallel.partition.boundaries import check_boundaries, stage_costs
from dtlearn.pipeline_parallel.partition.naive import by_count, greedy
from dtlearn.pipeline_parallel.partition.optimum import by_cost, by_stage_cost


def all_partitions(num_links, num_stages):
    for cuts in itertools.combinations(range(1, num_links), num_stages - 1):
        yield (0, *cuts, num_links)


def slowest(costs, boundaries):
    return max(stage_costs(costs, boundaries))


def test_no_partition_is_better():
    random.seed(0)
    strictly_better = 0
    for num_links in range(1, 9):
        for num_stages in range(1, num_links + 1):
            for _ in range(8):
                costs = [random.choice([0, 1, 1, 2, 5, 9]) for _ in range(num_links)]
                boundaries = by_cost(costs, num_stages)
                check_boundaries(boundaries, num_links)
                best = min(slowest(costs, each) for each in all_partitions(num_links, num_stages))
                assert slowest(costs, boundaries) == best
                naive = min(slowest(costs, greedy(costs, num_stages)), slowest(costs, by_count(num_links, num_stages)))
                strictly_better += best < naive
    assert strictly_better > 10


def test_a_head_as_long_as_three_blocks_gets_a_stage_for_itself():
    costs = [0, 4, 4, 4, 4, 4, 4, 12]  # embedding, six blocks, head
    assert by_cost(costs, 3) == (0, 4, 7, 8) and slowest(costs, (0, 4, 7, 8)) == 12
    assert slowest(costs, by_count(8, 3)) == 16


def test_of_equally_good_partitions_early_stages_are_short():
    assert by_cost([1] * 6, 4) == (0, 1, 2, 4, 6)


def test_a_cost_that_depends_on_the_stage():
    random.seed(1)
    for num_stages in range(1, 6):
        costs = [random.random() for _ in range(7)]

        def cost(stage, start, stop, costs=costs, num_stages=num_stages):
            return sum(costs[start:stop]) * (num_stages - stage)

        def worst(boundaries, cost=cost):
            return max(cost(stage, *pair) for stage, pair in enumerate(itertools.pairwise(boundaries)))

        best = min(map(worst, all_partitions(7, num_stages)))
        assert worst(by_stage_cost(cost, 7, num_stages)) == best


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="3 stages need 3 links or more"):
        by_cost([1, 1], 3)
    with pytest.raises(ValueError, match="link 0 costs -1"):
        by_cost([-1, 1], 2)
    with pytest.raises(ValueError, match="num_stages must be 1 or more, got 0"):
        by_stage_cost(lambda stage, start, stop: 0.0, 3, 0)
