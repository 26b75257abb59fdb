"""Ranks that do not fit are refused on every rank, before anything is sent between stages."""

import pytest
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.pipeline_parallel import make_schedule, parse_schedule
from dtlearn.pipeline_parallel.runner.preconditions import module_of, recomputed_stages, require_tied
from dtlearn.pipeline_parallel.runner.runner import PipelineRunner
from dtlearn.runtime.run import run_ranks
from tests.pipeline_parallel.runs import message_of

STAGES = [nn.Linear(2, 2) for _ in range(3)]
FORGETS = parse_schedule("0F0 0F1 0B0 0B1\n1F0 1B0 1F1")
STUCK = parse_schedule("0F0 0B0\n1B0 1F0")


def refusals():
    rank, group = dist.get_rank(), dist.new_group([1])
    attempts = {
        "too few": lambda: PipelineRunner(make_schedule("gpipe", 3, 2), STAGES, F.mse_loss),
        "not in the group": lambda: PipelineRunner(make_schedule("gpipe", 1, 1), STAGES, F.mse_loss, group=group),
        "another": lambda: PipelineRunner(make_schedule("gpipe" if rank else "1f1b", 2, 2), STAGES, F.mse_loss),
        "no module": lambda: PipelineRunner(make_schedule("gpipe", 2, 2), STAGES[: rank + rank], F.mse_loss),
        "forgets": lambda: PipelineRunner(FORGETS, STAGES, F.mse_loss),
        "stuck": lambda: PipelineRunner(STUCK, STAGES, F.mse_loss),
    }
    return {name: message_of(attempt) for name, attempt in attempts.items()}


def test_what_does_not_fit_is_refused_on_every_rank():
    both = run_ranks(refusals, 2, device="cpu").values
    for rank, messages in enumerate(both):
        assert f"gpipe is for 3 ranks; this is rank {rank} of a group of 2" in messages["too few"]
        assert "rank 1 has another schedule than rank 0" in messages["another"]
        assert "1B1" in messages["forgets"] and "rank 1" in messages["forgets"] and "stage 1" in messages["forgets"]
        assert "1B0" in messages["stuck"] and "stage 1" in messages["stuck"]
    assert "this is rank -1 of a group" in both[0]["not in the group"]
    assert "rank 0 holds stage 0, and there is no module for it" in both[0]["no module"]


def test_stages_may_be_a_list_or_a_mapping():
    assert module_of(STAGES, 1, 0) is module_of({1: STAGES[1]}, 1, 0) is STAGES[1]


def test_stages_to_recompute():
    assert recomputed_stages(True, 3) == {0, 1, 2} and recomputed_stages(False, 3) == set()
    assert recomputed_stages([2, 0], 3) == {0, 2}
    with pytest.raises(ValueError, match=r"recompute names stages \[3\]; the schedule has the 3 stages from 0 on"):
        recomputed_stages({1, 3}, 3)


def test_a_parameter_of_two_ranks_is_refused_and_one_of_a_rank_is_not():
    layer = nn.Linear(2, 2, bias=False)
    require_tied([layer, nn.Linear(2, 2), layer], (), (0, 1, 0))
    require_tied({0: layer}, (), (0, 1))
    require_tied([layer, layer], ((1, "weight"), (0, "weight")), (0, 1))
    with pytest.raises(ValueError, match="'weight' of stage 0 and 'weight' of stage 1 are one parameter"):
        require_tied({0: layer, 1: layer}, (), (0, 1))
