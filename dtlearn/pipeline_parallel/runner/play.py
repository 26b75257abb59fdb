"""The core of the runner: this rank's steps of a schedule, played one after the other.

Everything that travels is kept by the action that needs it, whether that is on another rank or on this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from dtlearn.runtime.recording.phases import phase

from ..actions import Action, Op
from ..schedule import Schedule
from .communication import MessageBatch, RankStep, describe
from .microbatches import Microbatches
from .stage import ForwardOnlyStage, PipelineStage
from .transfers import Transfers


def play(
    schedule: Schedule,
    steps: Iterable[RankStep],
    stages: Mapping[int, PipelineStage | ForwardOnlyStage],
    transfers: Transfers,
    batch: Microbatches,
) -> dict[int, torch.Tensor]:
    """Play this rank's steps: `page_pipeline.run_schedule` for any valid schedule, with any stages on a rank.

    Args:
        schedule: has the number of stages.
        steps: of this rank: its actions, and messages posted together; see `with_communication`.
        stages: of this rank, by number.
        transfers: tensors on their way to the actions that need them.
        batch: this rank's part of the batch.

    Returns:
        On the rank of the last stage, by micro-batch, its outputs: the loss, (), where there are targets.
    """
    last, results = schedule.num_stages - 1, dict[int, torch.Tensor]()

    def forward(action: Action) -> None:
        stage, _, m = action
        x = batch.inputs[m] if stage == 0 else transfers.take(action)
        y = compute(stages, action, x, *(batch.targets[m : m + 1] if stage == last else ()))
        if stage == last:
            results[m] = y
        else:
            transfers.put(Action(stage + 1, Op.F, m), y)

    def backward(action: Action) -> None:  # B, or I, which makes the same gradient
        stage, _, m = action
        if stage == last:
            share = batch.shares[m]  # d(loss of the batch) / d(loss of the micro-batch)
            dy = torch.full_like(results[m], share)
        else:
            dy = transfers.take(Action(stage, Op.B, m))
        dx = compute(stages, action, dy)
        if stage > 0:
            transfers.put(Action(stage - 1, Op.B, m), dx)

    for step in steps:
        try:
            if isinstance(step, MessageBatch):
                transfers.post(step)
            elif step.action.op is Op.F:
                forward(step.action)
            elif step.action.op is Op.W:
                compute(stages, step.action)
            else:
                backward(step.action)
        except Exception as error:
            error.add_note(f"{describe(step, transfers.rank)} ({schedule.name})")
            raise
    transfers.wait_for_sends()
    return results


METHODS = {Op.F: "forward", Op.B: "backward", Op.I: "backward_inputs", Op.W: "backward_weights"}


def compute(stages: Mapping[int, Any], action: Action, *tensors: torch.Tensor) -> Any:
    """Let a stage do an action, in a phase of the action's name, such as 2F0."""
    with phase(str(action)):
        return getattr(stages[action.stage], METHODS[action.op])(action.microbatch, *tensors)
