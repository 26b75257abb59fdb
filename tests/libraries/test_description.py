"""The description of a run: what follows from it, and what it refuses."""

import pytest

from dtlearn.libraries.description import RunDescription


def test_the_batch_is_micro_batch_times_accumulation_times_replicas():
    run = RunDescription(world_size=8, tp=2, pp=2, global_batch=24, accumulation=3)
    assert (run.dp, run.micro_batch) == (2, 4)
    assert run.micro_batch * run.accumulation * run.dp == run.global_batch


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"global_batch": 9}, "no multiple of 1 \\* 2"),
        ({"tp": 3}, "tp \\* pp must divide world_size"),
        ({"zero_stage": 4}, "zero_stage must be"),
        ({"offload_parameters": True, "zero_stage": 2}, "needs zero_stage=3"),
        ({"offload_optimizer": True}, "needs zero_stage=1 or more"),
        ({"precision": "fp8"}, "precision must be one of"),
        ({"optimizer": "lamb"}, "optimizer must be"),
        ({"steps": 0}, "steps must be 1 or more"),
        ({"context_length": 65}, "at most the model's 64"),
    ],
)
def test_what_does_not_fit_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        RunDescription(**changes)
