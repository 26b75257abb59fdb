"""torch's `PipelineStage`, also where a stage follows another one on the same rank, as in V-shaped schedules.

Before its first step torch 2.11 greets the ranks of the stages before and after with a message, also where that is the
rank itself. gloo connects no rank with itself: the step fails with "Pair is not connected". torch 2.13 begins with
another exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from torch.distributed.pipelining import PipelineStage


def torch_stage(module: nn.Module, stage: int, num_stages: int, device: torch.device | str) -> PipelineStage:
    """A stage for the schedules of torch.distributed.pipelining; with torch 2.11 it works on gloo, too.

    Args:
        module: what the stage computes.
        stage: its number, from 0.
        num_stages: of the whole pipeline.
        device: this rank's.
    """
    from torch.distributed.pipelining import PipelineStage  # here, because loading it takes seconds

    made = PipelineStage(module, stage, num_stages, torch.device(device))
    greetings = made._get_init_p2p_neighbors_ops

    def to_others() -> list[Any]:
        return [message for message in greetings() if message.group_peer != made.group_rank]

    made._get_init_p2p_neighbors_ops = to_others  # type: ignore[method-assign]
    return made
