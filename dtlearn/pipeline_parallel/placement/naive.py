"""Naive model parallelism: the layers of a model are on several ranks, and the whole batch passes from one to the next.

A model that is too large for one rank fits, and nothing becomes faster: while one rank works, all others wait.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.runtime.device import device

from .differentiable import receive, send


class NaiveModelParallel(nn.Module):
    """This rank's stage of a model, which takes the outputs of the rank before and hands its own to the rank after.

    The training loop is that of one process, on every rank:

        outputs = model(inputs)
        loss = loss_fn(outputs, targets) if model.is_last else outputs
        loss.backward()

    **Communication** (n bytes of outputs of a stage): a rank that is not the last sends a header of 88 bytes and n
        bytes to the next one in forward; a rank that is not the first sends n bytes back in backward.
    **Memory**: the parameters, gradients and optimizer state of this stage, and its activations for the whole batch.
    **Time**: of N ranks one works; the others are idle for (N-1)/N of the time, if the stages take equally long.

    Args:
        module: the stage of this rank; one tensor in, one tensor out.
        group: the ranks, in the order of the stages; None: all.

    Attributes:
        module: the stage.
        is_first, is_last: whether this rank takes the inputs, and whether it has the model's outputs.
    """

    def __init__(self, module: nn.Module, *, group: dist.ProcessGroup | None = None) -> None:
        super().__init__()
        self.module = module
        self._group = group
        self._rank = dist.get_rank(group)
        self.is_first = self._rank == 0
        self.is_last = self._rank == dist.get_world_size(group) - 1

    def forward(self, inputs: torch.Tensor | None = None) -> torch.Tensor:
        """On the last rank the model's outputs; on the others a zero, to call `backward()` on.

        Args:
            inputs: of the whole model; the first rank needs them, the others look at none.
        """
        if not self.is_first:
            inputs = receive(self._rank - 1, group=self._group, device=device())
        outputs: torch.Tensor = self.module(inputs)
        if self.is_last:
            return outputs
        return send(outputs, self._rank + 1, group=self._group)
