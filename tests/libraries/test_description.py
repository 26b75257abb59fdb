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
        ({"world_size": 2.0}, "world_size must be a whole number, got 2.0"),
        ({"global_batch": 8.0}, "global_batch must be a whole number"),
        ({"tp": True}, "tp must be a whole number, got True"),
        ({"world_size": "2"}, "world_size must be a whole number, got '2'"),
        ({"zero_stage": True}, "zero_stage must be a whole number"),
        ({"zero_stage": -1}, "zero_stage must be 0 or more"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"lr": float("nan")}, "lr must be a finite number of 0 or more, got nan"),
        ({"weight_decay": -1}, "weight_decay must be"),
        ({"clipping": None}, "clipping must be a finite number"),
        ({"recompute": 1}, "recompute must be True or False"),
        ({"options": []}, "options must be a dictionary"),
        ({"config": {}}, "config must be a GPTConfig, got {}"),
        ({"pp": 2, "zero_stage": 3}, "a pipeline takes zero_stage=0 or 1, got 3"),
        ({"world_size": 5, "pp": 5}, "pp must be at most 4, the blocks, the embedding and the head; got 5"),
        ({"world_size": 3, "tp": 3, "global_batch": 3}, "tp must divide num_heads, got 3 and 4"),
    ],
)
def test_what_does_not_fit_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        RunDescription(**changes)
