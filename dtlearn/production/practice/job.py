"""A small data-parallel job of which nothing may be forgotten: what each part changes shows in the next losses.

Each difficulty can be switched on by itself: momentum, a schedule of the learning rate, a loss scale for gradients in
16 bits, shuffled samples, dropout, flips that Python's `random` draws, and top-k gradients with error feedback.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class PracticeOptions:
    """What the job does beside plain SGD with all of its samples in order.

    Attributes:
        momentum: of SGD.
        decay: factor of the learning rate after every three updates.
        float16: whether gradients are in 16 bits, with a loss scale.
        batch: rows of each rank in a step; None: all.
        shuffle: whether they come in a new order in each epoch.
        dropout: between the layers; the masks are drawn by torch.
        flips: whether the sign of each sample is drawn by Python's `random`.
        topk: the share of the gradient that a rank sends; the rest is its residual.
    """

    momentum: float = 0.0
    decay: float = 1.0
    float16: bool = False
    batch: int | None = None
    shuffle: bool = False
    dropout: float = 0.0
    flips: bool = False
    topk: float = 1.0


class PracticeScaler:
    """A loss scale: less after an overflow, twice as much after three steps without one.

    Attributes:
        scale, good_steps: that factor, and steps since it changed.
    """

    def __init__(self) -> None:
        self.scale, self.good_steps = 2.0**24, 0

    def update(self, overflow: bool) -> None:
        """Adapt the scale; call it after each step."""
        self.good_steps = 0 if overflow else self.good_steps + 1
        if overflow:
            self.scale /= 16
        elif self.good_steps == 3:
            self.scale, self.good_steps = self.scale * 2, 0

    def state_dict(self) -> dict[str, float]:
        return {"scale": self.scale, "good_steps": self.good_steps}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.scale, self.good_steps = state["scale"], int(state["good_steps"])


class PracticeSampler:
    """The rows of each step, the same on all ranks: each has samples of its own."""

    def __init__(self, num_rows: int, batch: int, shuffle: bool) -> None:
        self.num_rows, self.batch, self.shuffle, self.epoch, self.position = num_rows, batch, shuffle, 0, 0

    def take(self) -> torch.Tensor:
        """The next rows; a remainder of an epoch is dropped."""
        if self.position + self.batch > self.num_rows:
            self.epoch, self.position = self.epoch + 1, 0
        order = torch.arange(self.num_rows)
        if self.shuffle:
            order = torch.randperm(self.num_rows, generator=torch.Generator().manual_seed(self.epoch))
        self.position += self.batch
        return order[self.position - self.batch : self.position]

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]


class PracticeModel(nn.Module):
    """Two layers, and a buffer: the moving average of all parameters."""

    average: torch.Tensor

    def __init__(self, features: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, 6), nn.Tanh(), nn.Dropout(dropout), nn.Linear(6, 1))
        self.register_buffer("average", nn.utils.parameters_to_vector(self.layers.parameters()).detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs, (rows,), of inputs x."""
        y: torch.Tensor = self.layers(x)
        return y.squeeze(1)


class PracticeJob:
    """The job on this rank.

    **Communication**: in each step an all-reduce of the gradient and one of two numbers.

    Attributes:
        model, optimizer, scheduler, scaler, sampler: with `state_dict` and `load_state_dict`.
        residual: (P,), what this rank has not yet sent of its gradients.
        step: updates made, or left out after an overflow.
    """

    def __init__(self, x: torch.Tensor, y: torch.Tensor, options: PracticeOptions, seed: int = 0) -> None:
        """Args:
        x, y: samples of this rank, (rows, features) and (rows,).
        options: the same on all ranks.
        seed: of the parameters.
        """
        self.x, self.y, self.options = x, y, options
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            self.model = PracticeModel(x.shape[1], options.dropout)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=options.momentum)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, options.decay)
        self.scaler = PracticeScaler()
        self.sampler = PracticeSampler(len(x), options.batch or len(x), options.shuffle)
        self.residual = torch.zeros_like(self.model.average)
        self.step = 0

    def train(self, until: int) -> list[float]:
        """Go on until so many steps are made. Returns the mean loss of the ranks in each."""
        losses = []
        while self.step < until:
            losses.append(self._train_step())
        return losses

    def _train_step(self) -> float:
        rows, scale = self.sampler.take(), self.scaler.scale if self.options.float16 else 1.0
        x, y = self.x[rows], self.y[rows]
        if self.options.flips:
            x = x * torch.tensor([[random.choice((-1.0, 1.0))] for _ in rows])
        loss = F.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        (loss * scale).backward()
        gradient = torch.cat([p.grad.flatten() for p in self.model.parameters() if p.grad is not None])  # (P,)
        if self.options.float16:
            gradient = gradient.half().float()
        numbers = torch.stack([loss.detach(), (~gradient.isfinite()).any().float()])
        dist.all_reduce(numbers)
        overflow = bool(numbers[1] > 0)
        if not overflow:
            self._update(gradient / scale)
        self.scaler.update(overflow)
        self.step += 1
        return numbers[0].item() / dist.get_world_size()

    @torch.no_grad()
    def _update(self, gradient: torch.Tensor) -> None:
        owed = gradient + self.residual
        smallest = owed.abs().topk(max(1, int(self.options.topk * len(owed)))).values[-1]
        sent = torch.where(owed.abs() >= smallest, owed, 0.0)
        self.residual.copy_(owed - sent)
        dist.all_reduce(sent)
        nn.utils.vector_to_parameters(sent / dist.get_world_size(), _gradients(self.model))
        self.optimizer.step()
        self.scheduler.step()
        self.model.average.lerp_(nn.utils.parameters_to_vector(self.model.parameters()), 0.1)


def _gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]
