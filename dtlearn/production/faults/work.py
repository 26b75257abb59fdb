"""The work of the job: a small model in float64, its share of a batch, its update, and its checkpoints.

The global batch stays what it is when the number of ranks changes, as `plan_batch` says, and each rank adds its part of
the mean's gradient. So the losses of a job that goes on with fewer ranks, if these divide the batch, are those of the
unbroken one, up to rounding.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from dtlearn.train.checkpoint import checkpoint_file, checkpoints_in, read_checkpoint, write_checkpoint
from dtlearn.train.ranks.rank_0 import from_rank_0

from ..batch_plan import BatchPlan, plan_batch

_FEATURES, _LR, _MOMENTUM = 8, 0.05, 0.9


@dataclass
class JobState:
    """The model and its momentum.

    Momentum by hand: the first optimizer of `torch.optim` that a process makes loads torch's compiler, and a restart
    would take a second longer.

    Attributes:
        model: the same on every rank, in float64.
        momentum: of each parameter.
    """

    model: nn.Module
    momentum: list[torch.Tensor]


def new_state() -> JobState:
    """The state at step 0."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(_FEATURES, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 3)
    return JobState(model, [torch.zeros_like(parameter) for parameter in model.parameters()])


def share(batch: int, size: int) -> BatchPlan:
    """How so many ranks share the job's batch; the samples of a rank fit into its memory."""
    return plan_batch(batch, size, max_micro_batch=batch, lr=_LR)


def gradient(model: nn.Module, step: int, rank: int, plan: BatchPlan) -> torch.Tensor:
    """A rank's part of the gradient of the global batch's mean loss, and of that loss: (P + 1,)."""
    batch, own = plan.global_batch, plan.global_batch // plan.num_ranks
    rows = slice(own * rank, own * (rank + 1))
    generator = torch.Generator().manual_seed(1000 + step)
    x = torch.randn(batch, _FEATURES, generator=generator, dtype=torch.float64)
    y = x.sin().sum(1, keepdim=True)
    loss = F.mse_loss(model(x[rows]), y[rows], reduction="sum") / batch
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return torch.cat([*(g.flatten() for g in gradients), loss.detach()[None]])


def apply_gradient(state: JobState, flat: torch.Tensor, lr: float = _LR) -> None:
    """Update the parameters with the summed gradient, (P + 1,): SGD with momentum, as torch.optim.SGD does it."""
    parameters = list(state.model.parameters())
    parts = flat[:-1].split([p.numel() for p in parameters])
    with torch.no_grad():
        for parameter, momentum, part in zip(parameters, state.momentum, parts, strict=True):
            momentum.mul_(_MOMENTUM).add_(part.view_as(parameter))
            parameter.sub_(momentum, alpha=lr)


def save(folder: Path, step: int, state: JobState, seconds: float = 0.0) -> None:
    """Write a checkpoint, whole or not at all, on rank 0; all ranks wait for it, at least so many seconds.

    **Communication:** a broadcast from rank 0 of whether it was written.
    """
    begun = time.monotonic()
    content = {"format": 1, "step": step, "model": state.model.state_dict(), "momentum": state.momentum}

    def write() -> None:
        time.sleep(max(0.0, begun + seconds - time.monotonic()))
        write_checkpoint(content, checkpoint_file(folder, step), keep=2)

    from_rank_0(write)


def resume(folder: Path) -> tuple[int, JobState]:
    """The newest checkpoint's step and state, on all ranks; step 0 if there is none.

    Rank 0 says which it is: a rank that saw another one would train another model.

    **Communication:** the state is broadcast from rank 0, pickled: parameters and momentum, once.
    """

    def newest() -> dict[str, Any] | None:
        files = checkpoints_in(folder)
        return read_checkpoint(files[0]) if files else None

    state, content = new_state(), from_rank_0(newest)
    if content is None:
        return 0, state
    state.model.load_state_dict(content["model"])
    return int(content["step"]), JobState(state.model, content["momentum"])
