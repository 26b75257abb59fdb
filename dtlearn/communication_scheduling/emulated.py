"""Layers that take given times, on real ranks and an emulated link: a policy run, beside the simulator's answer.

While a rank sleeps in place of computing it needs no core, so ranks overlap as devices would, and a layer takes what it
is told to. All else is real: gradients of the given size, the messages, the wrapper, its threads. What is drawn or
measured with such layers says "emulated layer times".
"""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.runtime.link.link import Link
from dtlearn.runtime.run import run_ranks

from .policy import GradientPartition, SchedulingPolicy
from .simulate import LayerTimes, ScheduledStep, TransferSeconds, simulate_step
from .wrapper import PriorityDataParallel

LABEL = "emulated layer times"
WIDTH = 8  # numbers of a sample that go from layer to layer


class PacedLayer(nn.Module):
    """Adds a bias, in a given time, and has a gradient of a given size: (B, 8) -> (B, 8).

    Args:
        forward, backward: seconds.
        nbytes: of its parameter, in float32; at least 32.
    """

    def __init__(self, forward: float, backward: float, nbytes: int) -> None:
        super().__init__()
        self.seconds = forward, backward
        self.weight = nn.Parameter(torch.zeros(max(nbytes // 4, WIDTH)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = _Paced.apply(x, self.weight, *self.seconds)
        return y  # (B, 8)


class _Paced(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, forward: float, backward: float) -> torch.Tensor:
        until = time.perf_counter() + forward
        ctx.backward_seconds, ctx.like = backward, weight
        y = x + weight[:WIDTH]
        time.sleep(max(0.0, until - time.perf_counter()))
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        until = time.perf_counter() + ctx.backward_seconds
        of_weight = torch.zeros_like(ctx.like)
        of_weight[:WIDTH] = gradient.sum(0)
        time.sleep(max(0.0, until - time.perf_counter()))
        return gradient, of_weight, None, None


def paced_model(times: LayerTimes) -> nn.Sequential:
    """A model of such layers."""
    layers = zip(times.forward, times.backward, times.nbytes, strict=True)
    return nn.Sequential(*(PacedLayer(*one) for one in layers))


def transfer_seconds(link: Link, num_ranks: int) -> TransferSeconds:
    """What the all-reduce of so many bytes takes on a link."""
    return lambda nbytes: link.seconds("all_reduce", nbytes, num_ranks)


def run_emulated(
    times: LayerTimes,
    policy: SchedulingPolicy,
    link: Link,
    *,
    planned: bool = True,
    num_ranks: int = 2,
    steps: int = 3,
) -> list[list[ScheduledStep]]:
    """Run a policy on real ranks; called in the process of the notebook.

    Args:
        times: of the layers.
        policy: of the sends.
        link: that is emulated.
        planned: in the simulator's order; False: rank 0 decides.
        num_ranks: how many.
        steps: that are recorded, after one that is not: in the first one connections are opened.

    Returns:
        `steps[rank][step]`, each with seconds from the beginning of its backward pass.

    Raises:
        RankError, RanksTimeout: as `run_ranks`.
    """
    order = simulate_step(times, policy, transfer_seconds(link, num_ranks)).order if planned else None
    return list(run_ranks(steps_on_rank, num_ranks, times, policy, order, steps, device="cpu", link=link))


def steps_on_rank(
    times: LayerTimes, policy: SchedulingPolicy, order: list[GradientPartition] | None, steps: int
) -> list[ScheduledStep]:
    """On each rank: some steps of a model with such times."""
    model = PriorityDataParallel(paced_model(times), lambda p: torch.optim.SGD(p, lr=1e-3), policy, order=order)
    found, inputs = [], torch.ones(1, WIDTH, requires_grad=True)
    for number in range(steps + 2):
        outputs = model(inputs)  # the forward pass that belongs to the step before
        if number > 1:
            found.append(model.last_step())
        if number < steps + 1:
            dist.barrier()  # ranks begin together, as the simulator's do
            outputs.mean().backward()
    return found


def beside_simulator(measured: list[list[ScheduledStep]], simulated: ScheduledStep) -> float:
    """How many times as long as simulated the fastest step took, by its slowest rank."""
    fastest: float = min(max(step.makespan for step in ranks) for ranks in zip(*measured, strict=True))
    return fastest / simulated.makespan
