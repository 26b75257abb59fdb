"""Emulated stage times: stages that sleep for as long as they are told to, so that eight of them fit on two cores.

A processor with two cores cannot show what eight devices do at the same time. While a rank sleeps it needs no core, so
ranks that sleep in place of computing overlap as devices would. All else is real: the ranks, the messages, autograd,
and a small computation with a parameter, so that gradients can be checked. What is drawn or measured with such stages
says "emulated stage times".
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.runtime.link.link import Link
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.record.training_steps import part
from dtlearn.runtime.recording.phases import phase
from dtlearn.runtime.run import run_ranks

from .actions import Action, Op
from .checking.simulate import StageTimes
from .checking.validate import check
from .runner.runner import PipelineRunner
from .runner.split_backward import add_gradient, weight_work
from .schedule import Schedule

LABEL = "emulated stage times"
WIDTH = 8  # numbers of a sample that go from stage to stage


class EmulatedStage(nn.Module):
    """Multiplies by a weight, in a given time: (B, WIDTH) -> (B, WIDTH).

    The weight is one number for each of WIDTH columns, 1 at first.

    Args:
        forward: seconds of a forward pass.
        inputs: seconds of the gradient of the inputs, I.
        weights: seconds of the gradient of the weights, W. A whole backward pass takes both.

    Raises:
        ValueError: a negative number of seconds.
    """

    def __init__(self, forward: float = 0.0, inputs: float = 0.0, weights: float = 0.0) -> None:
        super().__init__()
        if min(forward, inputs, weights) < 0:
            raise ValueError(f"a stage takes 0 s or more, got {forward}, {inputs} and {weights}")
        self.seconds = forward, inputs, weights
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        forward, inputs, weights = self.seconds
        clock = _Clock()
        if not x.requires_grad:  # the first stage: its I takes time, too, as in any schedule
            x = x.detach().requires_grad_()
        y: torch.Tensor = _InputPath.apply(x, clock, forward, inputs) * _WeightPath.apply(self.weight, clock, weights)
        if y.requires_grad:  # not in an evaluation
            y.register_hook(clock.start)
        return y  # (B, WIDTH)


class _Clock:
    """Sleeps until a stage has taken the time that it is told to, what this process itself needed for it included."""

    def __init__(self) -> None:
        self.start()

    def start(self, _: torch.Tensor | None = None) -> None:
        """An action begins; the hook of a gradient where it is a backward pass."""
        self._until = time.perf_counter()

    def take(self, seconds: float) -> None:
        """A part of the action takes so long."""
        self._until += seconds
        time.sleep(max(0.0, self._until - time.perf_counter()))


class _InputPath(torch.autograd.Function):
    """Nothing but time: F in forward, I in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, clock: _Clock, forward: float, inputs: float) -> torch.Tensor:
        ctx.clock, ctx.inputs = clock, inputs
        clock.take(forward)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        ctx.clock.take(ctx.inputs)
        return gradient, None, None, None


class _WeightPath(torch.autograd.Function):
    """Nothing but time, W, in backward; or later, where the runner splits the backward pass."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, clock: _Clock, weights: float) -> torch.Tensor:
        ctx.weight, ctx.clock, ctx.weights = weight, clock, weights
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, None, None]:
        def work() -> None:
            ctx.clock.start()
            ctx.clock.take(ctx.weights)
            add_gradient(ctx.weight, gradient)

        if weight_work(work):
            return None, None, None
        ctx.clock.take(ctx.weights)
        return gradient, None, None


def emulated_stages(schedule: Schedule, times: StageTimes, rank: int) -> dict[int, EmulatedStage]:
    """A rank's stages, by their number; `times` in seconds."""
    return {
        stage: EmulatedStage(*(times.of(Action(stage, op, 0)) for op in (Op.F, Op.I, Op.W)))
        for stage in schedule.stages_of(rank)
    }


def run_emulated(schedule: Schedule, times: StageTimes, *, steps: int = 1, link: Link | None = None) -> Record:
    """Execute a schedule on real ranks, with stages that take the given times; called in the process of the notebook.

    Args:
        schedule: any that `checking.validate` finds nothing wrong with.
        times: of the stages, in seconds.
        steps: how many steps are recorded, one after the other. A step before them is not in the record: in the first
            one ranks tell each other shapes and open connections.
        link: emulate this interconnect, too.

    Returns:
        The record, with a phase for each action, such as "2F0", and a label that says what is emulated.

    Raises:
        ScheduleError: the schedule is wrong.
        RankError, RanksDisagree, RanksTimeout: as `run_ranks`.
    """
    check(schedule)
    options: dict[str, Any] = {"device": "cpu", "link": link, "record": True}
    run = run_ranks(_steps_on_rank, schedule.num_ranks, schedule, times, steps, **options)
    record = part(run.record, "measured")
    return replace(record, label=f"{record.label}, {LABEL}" if record.label else LABEL)


def _steps_on_rank(schedule: Schedule, times: StageTimes, steps: int) -> None:
    runner = PipelineRunner(schedule, emulated_stages(schedule, times, dist.get_rank()), mean_of_outputs)
    inputs = torch.ones(schedule.num_microbatches, WIDTH)  # a sample for each micro-batch
    runner.step(inputs, inputs)
    for _ in range(steps):
        dist.barrier()
        with phase("measured"):
            runner.step(inputs, inputs)


def mean_of_outputs(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss that takes no time: (B, WIDTH) -> (). The targets are not used."""
    return outputs.mean()
