import pytest

from dtlearn.models import GPTConfig
from dtlearn.pipeline_parallel.checking.simulate import StageTimes, simulate
from dtlearn.pipeline_parallel.partition.boundaries import imbalance
from dtlearn.pipeline_parallel.partition.costs import gpt_flops
from dtlearn.pipeline_parallel.partition.naive import by_count
from dtlearn.pipeline_parallel.partition.optimum import by_cost
from dtlearn.pipeline_parallel.partition.stage_times import stage_times
from dtlearn.pipeline_parallel.schedules.make import make_schedule


def test_times_are_sums_over_the_links():
    assert stage_times([1, 2, 3], (0, 1, 3)) == StageTimes((1, 5), (1, 5), (1, 5))
    assert stage_times([1, 2, 3], (0, 2, 3), [4, 4, 2]) == StageTimes((3, 3), (4, 1), (4, 1))
    with pytest.raises(ValueError, match="end with the number of links"):
        stage_times([1, 2, 3], (0, 2))


@pytest.mark.parametrize("m", [1, 4, 32])
def test_the_slowest_stage_sets_the_pace_of_gpipe(m):
    times = stage_times([1, 1, 2, 1, 3, 1], (0, 2, 3, 5, 6))  # 2, 2, 4, 1
    found = simulate(make_schedule("gpipe", 4, m), times)
    assert found.makespan == 3 * (sum(times.forward) + (m - 1) * max(times.forward))


def test_imbalance_is_bubble_that_more_microbatches_do_not_remove():
    flops = gpt_flops(GPTConfig(vocab_size=50257, context_length=1024, num_layers=12, num_heads=12, hidden_size=768))
    equal, best = by_count(len(flops), 4), by_cost(flops, 4)
    for boundaries in (equal, best):
        few, many = (simulate(make_schedule("1f1b", 4, m), stage_times(flops, boundaries)) for m in (8, 512))
        assert many.idle_to_useful < few.idle_to_useful
        # What is left for very many micro-batches: makespan / (useful time / p) = slowest stage / mean.
        assert 1 + many.idle_to_useful == pytest.approx(imbalance(flops, boundaries), rel=0.01)
    assert imbalance(flops, equal) > 1.4 > 1.25 > imbalance(flops, best)
