"""What the test of `job` does not see: buffers, parts that are missing, and residuals on other ranks."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.gradient_compression import ErrorFeedback, TopK
from dtlearn.production.checkpoints import Checkpointer, TrainingState, replicated_cuts
from dtlearn.production.checkpoints.format import CheckpointError
from dtlearn.zero import ShardedParameters
from tests.devices import run_ranks


def make(shared=None, feedback=None):
    ready = dist.is_initialized()
    rank, num_ranks = (dist.get_rank(), dist.get_world_size()) if ready else (0, 1)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cuts = replicated_cuts(model, copy=rank, copies=num_ranks)
    return TrainingState(
        model, ShardedParameters.of_module(model), optimizer, cuts, shared=shared or {}, feedback=feedback
    )


def test_buffers_and_random_numbers_go_on(tmp_path):
    state = make()
    state.model(torch.randn(5, 3))
    state.step = 7
    with Checkpointer(tmp_path) as checkpointer:
        assert state.resume(checkpointer) is None
        assert state.save(checkpointer)
        drawn = torch.rand(4)
        other = make()
        assert other.resume(checkpointer) == [f"going on from {tmp_path}/step-00000007"]
    assert torch.equal(torch.rand(4), drawn) and other.step == 7
    for name, value in state.model.state_dict().items():
        assert torch.equal(other.model.state_dict()[name], value), name


def test_a_part_that_was_not_saved_is_named(tmp_path):
    with Checkpointer(tmp_path) as checkpointer:
        make().save(checkpointer)
        wants = make({"scheduler": torch.optim.lr_scheduler.LambdaLR(make().optimizer, lambda step: 1.0)})
        with pytest.raises(CheckpointError, match="the checkpoint of step 0 has no scheduler: it is of another job"):
            wants.resume(checkpointer)


def save_residuals(folder):
    state = make(feedback=ErrorFeedback(TopK(k=1)))
    parameters = list(state.model.parameters())
    gradient = torch.arange(1.0, 25.0) + 100 * dist.get_rank()
    state.feedback.encode(gradient, parameters)
    with Checkpointer(folder) as checkpointer:
        state.save(checkpointer)
    return torch.cat([part.flatten() for part in state.feedback.residuals.parts.values()])


def load_residuals(folder):
    state = make(feedback=ErrorFeedback(TopK(k=1)))
    with Checkpointer(folder) as checkpointer:
        state.resume(checkpointer)
    parts = state.feedback.residuals.parts.values()
    return torch.cat([part.flatten() for part in parts]) if parts else torch.zeros(24)


def test_what_was_not_sent_is_still_owed_on_other_numbers_of_ranks(tmp_path):
    saved = run_ranks(save_residuals, 3, str(tmp_path), device="cpu").values
    same = run_ranks(load_residuals, 3, str(tmp_path), device="cpu").values
    assert all(torch.equal(a, b) for a, b in zip(saved, same, strict=True))
    for ranks in (2, 4):
        owed = run_ranks(load_residuals, ranks, str(tmp_path), device="cpu").values
        assert torch.allclose(sum(owed) / ranks, sum(saved) / 3, rtol=1e-6)
