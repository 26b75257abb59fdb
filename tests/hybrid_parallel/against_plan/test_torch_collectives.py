"""torch at 1,024 ranks, in one process: counts and bytes are the planner's."""

import pytest
import torch

from dtlearn.hybrid_parallel.against_plan import collectives_table, planned_collectives, torch_collectives
from dtlearn.hybrid_parallel.against_plan.torch_collectives import WIDE, CallCount, divided_parameters
from dtlearn.models import GPT, GPTConfig

SMALL = GPTConfig(vocab_size=32, context_length=8, num_layers=2, num_heads=4, hidden_size=32)


@pytest.mark.parametrize(("tp", "dp", "zero"), [(16, 64, 3), (8, 128, 2)])
def test_torchs_collectives_at_1024_ranks_are_the_planners(tp, dp, zero):
    found, planned = (count(tp=tp, dp=dp, zero=zero) for count in (torch_collectives, planned_collectives))
    assert found == planned
    assert found["tp", "all-reduce"] == CallCount(8, 8 * 4 * 128 * 1024)  # four of each block, of b T C elements
    gathers = found["dp", "all-gather"]
    assert gathers.times == (2 if zero == 3 else 1) * 3  # two blocks and the rest of the model
    assert gathers.nbytes == (2 if zero == 3 else 1) * 4 * divided_parameters(WIDE, tp)


def test_parameters_of_a_rank_are_those_of_the_model():
    model = GPT(SMALL)
    assert divided_parameters(SMALL, 1) == SMALL.num_parameters
    weights = sum(p.numel() for p in model.blocks.parameters() if p.dim() == 2)
    columns = 2 * 7 * 32  # biases of query, key, value and up
    assert divided_parameters(SMALL, 4) == SMALL.num_parameters - (weights + columns) * 3 // 4


def test_the_table_shows_a_difference():
    found, planned = (count(SMALL, tp=2, dp=4, rows=2) for count in (torch_collectives, planned_collectives))
    assert found == planned
    lines = collectives_table(found, {**planned, ("tp", "all-reduce"): CallCount(12, 1.0)}).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["tp", "all-reduce"],
        ["dp", "all-gather"],
        ["dp", "reduce-scatter"],
    ]
    assert lines[1].endswith("not equal") and not lines[2].endswith("not equal")


@pytest.mark.parametrize("count", [torch_collectives, planned_collectives])
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"zero": 1}, "got zero=1"),
        ({"zero": 8}, "got zero=8"),
        ({"tp": 8}, "has to divide 4 heads"),
        ({"dp": 0}, "dp must have 1 rank or more"),
        ({"rows": 0}, "rows is a whole number of 1 or more; got 0"),
    ],
)
def test_what_torch_cannot_do_is_refused_and_not_planned(count, wrong, says):
    with pytest.raises(ValueError, match=says):
        count(SMALL, **{"tp": 2, "dp": 2} | wrong)
    assert not torch.distributed.is_initialized()
