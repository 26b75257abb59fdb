"""What a worker computes between a pull and a push, as a function: of the model, its batches, and the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from dtlearn.models.reference import Batch, LossFn, NamedTensors


class Computed(NamedTuple):
    """The result of a batch.

    Attributes:
        loss: mean over the batch, before its update.
        gradients: by name, as in `model.named_parameters()`; zeros where a parameter was not used.
        weight: samples in the batch.
    """

    loss: float
    gradients: NamedTensors
    weight: int


ComputeGradients = Callable[
    [int, int, Mapping[str, torch.Tensor]], Computed
]  # (worker, number of its push, parameters)


def computing(model: nn.Module, loss_fn: LossFn, batches: Sequence[Sequence[Batch]]) -> ComputeGradients:
    """What each worker computes with its batches.

    One model serves all workers, one after the other, so buffers (BatchNorm's) are not those of a real run. The bits
    are those of a rank if torch computes with as many threads as there: one.

    Args:
        model: a copy for this function; its parameters are overwritten.
        loss_fn: mean loss of (outputs, targets).
        batches: `batches[worker][number]`.
    """

    def compute(worker: int, number: int, parameters: Mapping[str, torch.Tensor]) -> Computed:
        with torch.no_grad():
            for name, own in model.named_parameters():
                own.copy_(parameters[name])
        model.zero_grad()
        inputs, targets = batches[worker][number]
        loss = loss_fn(model(inputs), targets)  # ()
        loss.backward()
        gradients = {
            name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()
        }
        return Computed(loss.item(), gradients, len(inputs))

    return compute
