"""The single-process run that every strategy is compared with.

A strategy is right if it reaches the losses, the gradients and the parameters of this run, step by step. The loss is
the mean over the global batch; a strategy that splits the batch has to arrive at the same mean.
Results are snapshots on the CPU, named as in `model.named_parameters()`: a tied parameter appears once, and a frozen
or unused one has no gradient entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor]  # inputs and targets; both start with the batch dimension
LossFn = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # (outputs, targets) -> mean loss, ()
NamedTensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class ReferenceStep:
    """One training step.

    Attributes:
        loss: mean over the global batch, before the update.
        gradients: of that loss, by parameter name.
        parameters: after the update, by name.
    """

    loss: float
    gradients: NamedTensors
    parameters: NamedTensors


@dataclass(frozen=True)
class ReferenceRun:
    """A whole run: the parameters before the first step, by name, and the steps."""

    initial: NamedTensors
    steps: tuple[ReferenceStep, ...]

    @property
    def losses(self) -> list[float]:
        """The loss of each step."""
        return [step.loss for step in self.steps]


class Difference(NamedTuple):
    """The largest difference between two sets of tensors, and the tensor that has it."""

    name: str
    value: float

    def __str__(self) -> str:
        return f"{self.name} differs by {self.value:.3g}"


def num_parameters(model: nn.Module) -> int:
    """Number of parameters of a model; a tied parameter counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def snapshot_parameters(model: nn.Module) -> NamedTensors:
    """Copies of the parameters, on the CPU, by name."""
    return {name: p.detach().to("cpu", copy=True) for name, p in model.named_parameters()}


def snapshot_gradients(model: nn.Module) -> NamedTensors:
    """Copies of the gradients, on the CPU, by name; a parameter without a gradient is left out."""
    return {name: p.grad.to("cpu", copy=True) for name, p in model.named_parameters() if p.grad is not None}


def reference_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, loss_fn: LossFn) -> ReferenceStep:
    """Train on one global batch, in this process, and keep what a strategy must reproduce.

    Args:
        model, optimizer: changed in place.
        batch: inputs and targets of the whole global batch, on the model's device.
        loss_fn: mean loss of (outputs, targets).
    """
    inputs, targets = batch
    optimizer.zero_grad()
    loss = loss_fn(model(inputs), targets)  # ()
    loss.backward()
    gradients = snapshot_gradients(model)  # before step(): an optimizer may change them in place
    optimizer.step()
    return ReferenceStep(loss.item(), gradients, snapshot_parameters(model))


def train_reference(
    make_model: Callable[[], nn.Module],
    make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    batches: Iterable[Batch],
    loss_fn: LossFn,
    *,
    seed: int = 0,
) -> ReferenceRun:
    """Train in this process, one step per global batch.

    Args:
        make_model: builds the model, such as `MLP`.
        make_optimizer: builds the optimizer from the parameters, such as `lambda p: torch.optim.SGD(p, lr=0.1)`.
        batches: the global batches, one per step, on the model's device.
        loss_fn: mean loss of (outputs, targets).
        seed: given to `torch.manual_seed` before the model is built.

    Raises:
        ValueError: there is no batch, so that a comparison with this run would prove nothing.
    """
    torch.manual_seed(seed)
    model = make_model()
    initial = snapshot_parameters(model)
    optimizer = make_optimizer(model.parameters())
    steps = tuple(reference_step(model, optimizer, batch, loss_fn) for batch in batches)
    if not steps:
        raise ValueError("batches is empty: a reference run needs at least one step")
    return ReferenceRun(initial, steps)


def max_difference(a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor]) -> Difference:
    """The largest absolute difference between two sets of named tensors, element by element.

    A value that is not finite, on either side, counts as an infinite difference: NaN never passes a parity test.

    Raises:
        ValueError: the sets are empty, or differ in names or shapes.
    """
    if a.keys() != b.keys():
        raise ValueError(
            f"the names differ: only in a {sorted(a.keys() - b.keys())}, only in b {sorted(b.keys() - a.keys())}"
        )
    if not a:
        raise ValueError("there is nothing to compare: both sets are empty")
    worst = Difference("", -1.0)
    for name in a:
        if a[name].shape != b[name].shape:
            raise ValueError(f"{name} has shape {tuple(a[name].shape)} in a, {tuple(b[name].shape)} in b")
        distance = (a[name].detach().cpu().double() - b[name].detach().cpu().double()).abs()
        value = distance.max().item() if distance.numel() else 0.0
        if math.isnan(value):  # one NaN makes the maximum NaN
            value = math.inf
        if value > worst.value:
            worst = Difference(name, value)
    return worst
