"""Two ranks that disagree about an overflow and drift apart: a small tensor-parallel model, trained in float16.

The model is y = sum over features of w * v * x. Every rank has the whole of v (a norm's weight is such a parameter) and
a shard of w (a row-parallel layer). In the first step a feature of the last rank is far too large, and the gradient of
that rank's shard overflows; those of the others, and that of v, do not.

Each rank by itself: the last one skips and halves its scale, the others step. From then on v differs. And as gradients
of v are summed over ranks that scale by different S, no rank gets its mean back by dividing by its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.runtime.device import device

from .grad_scaler import GradScaler

FEATURES, SAMPLES = 8, 4
_OUTLIER = 8000.0  # of values near 1
_FIRST_WEIGHT, _LEARNING_RATE = 0.001, 0.03


@dataclass(frozen=True)
class DriftStep:
    """A rank after a training step.

    Attributes:
        loss: of this step's batch, before the update.
        scale: after the update.
        was_skipped: whether this rank skipped the step.
        replicated: v, (D,), which should be the same on all ranks.
        shard: this rank's part of w, (D/N,).
    """

    loss: float
    scale: float
    was_skipped: bool
    replicated: torch.Tensor
    shard: torch.Tensor


def train_on_rank(agree: bool, steps: int = 12, init_scale: float = 8.0) -> list[DriftStep]:
    """On each rank: train, each rank with a scaler of its own, which agrees with the others or not.

    With one rank it is the reference: the same batches, and nobody to disagree with.

    **Communication**, each step: all-reduces of B predictions and of the gradient of v, 4 bytes an
    element; with `agree`, one of 4 bytes for the overflow.

    Args:
        agree: `GradScaler(group=...)` over all ranks; otherwise each decides for itself.
        steps: training steps.
        init_scale: of all ranks.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = slice(rank * FEATURES // size, (rank + 1) * FEATURES // size)
    v = nn.Parameter(torch.ones(FEATURES, device=device()))  # (D,)
    w = nn.Parameter(torch.full_like(v[mine], _FIRST_WEIGHT))  # (D/N,)
    optimizer = torch.optim.SGD([v, w], lr=_LEARNING_RATE)
    scaler = GradScaler(init_scale, group=dist.group.WORLD if agree else None)
    history = []
    for step in range(steps):
        inputs, targets = (each.to(device()) for each in batch(step))
        optimizer.zero_grad()
        loss = (predict(inputs[:, mine], v[mine], w) - targets).square().mean()
        scaler.scale(loss).backward()
        dist.all_reduce(v.grad)  # each rank has the gradient of its own features, and zeros
        scaler.step(optimizer)
        was_skipped = scaler.was_skipped(optimizer)
        scaler.update()
        weights = v.detach().to("cpu", copy=True), w.detach().to("cpu", copy=True)
        history.append(DriftStep(loss.item(), scaler.get_scale(), was_skipped, *weights))
    return history


def predict(inputs: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The sum over all ranks' features, in float16; the gradient goes to this rank's alone.

    Args:
        inputs: this rank's features, (B, D/N).
        v, w: of these features, (D/N,).

    Returns:
        (B,), float32, the same on all ranks.
    """
    part = (inputs.half() * v.half() * w.half()).float().sum(dim=1)  # (B,)
    total = part.detach().clone()
    dist.all_reduce(total)
    return part + (total - part.detach())


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs (B, D) and targets (B,) of a step, the same on all ranks; the first has the outlier."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
    targets = inputs @ torch.linspace(-1, 1, FEATURES)
    if step == 0:
        inputs[0, -1] = _OUTLIER
    return inputs, targets


def differences(histories: Sequence[Sequence[DriftStep]]) -> list[float]:
    """After each step, how far the ranks' copies of v are apart, at most.

    Args:
        histories: what `train_on_rank` returned, of each rank.
    """
    copies = [torch.stack([step.replicated for step in steps]) for steps in zip(*histories, strict=True)]  # (N, D)
    return [(values.amax(dim=0) - values.amin(dim=0)).max().item() for values in copies]
