"""Memory that grows from step to step: something keeps a tensor, and with it the graph that made it.

What a kept tensor costs depends on its graph. Backward frees what the graph has saved: a loss that is kept after it has
4 bytes, and the graph's nodes, which are no tensors. A loss that no backward went through keeps all activations.

`LEAKS` are steps of training loops that put something into `kept`, for a log, say; `MENDED` has each without the leak.
`growth_per_step` measures any of them, and any step of yours.

Source: PyTorch, "Frequently Asked Questions", "My model reports cuda runtime error(2): out of memory".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dtlearn.models.reference import Batch, LossFn

from ..ledger.ledger import MemoryLedger
from ..ledger.storage_ledger import StorageLedger

# A step of a training loop; the list outlives it.
TrainingStep = Callable[[nn.Module, torch.optim.Optimizer, Batch, LossFn, list[Any]], None]


def live_after_each(step: Callable[[], object], num_steps: int) -> list[int]:
    """Bytes of tensors that live after each call of `step`, of those that were made since the first began.

    **Communication**: that of the steps. **Memory**: theirs.
    """
    with StorageLedger() as ledger:
        return [(step(), ledger.now)[1] for _ in range(num_steps)]


def growth_per_step(step: Callable[[], object], num_steps: int = 4, warm: int = 2) -> float:
    """Bytes that each further call of `step` adds; 0 for a loop without a leak.

    The first steps do not count: they make gradients and the optimizer's state, once.

    Raises:
        ValueError: no step to measure.
    """
    _require_steps(num_steps, warm)
    live = live_after_each(step, warm + num_steps)
    return (live[-1] - live[warm - 1]) / num_steps


def growth_by_line(step: Callable[[], object], num_steps: int = 4, warm: int = 2) -> dict[str, float]:
    """`growth_per_step` by "file:line" that made what stays, the largest first. A ledger cannot know who keeps it.

    Raises:
        ValueError: no step to measure.
    """
    _require_steps(num_steps, warm)
    with MemoryLedger() as ledger:
        with ledger.phase("warm"):
            for _ in range(warm):
                step()
        for _ in range(num_steps):
            step()
    record = ledger.record()
    growth = Counter[str]()
    for allocation in record.at(record.clock):
        growth[allocation.line] += allocation.bytes
    for allocation in record.at(record.phases[0].stop):
        growth[allocation.line] -= allocation.bytes
    return {line: added / num_steps for line, added in growth.most_common() if added > 0}


def num_graph_nodes(tensor: torch.Tensor) -> int:
    """Nodes of the autograd graph that this tensor keeps; the ledger does not count them: they are no tensors."""
    seen, waiting = set[Any](), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return len(seen)


def _require_steps(num_steps: int, warm: int) -> None:
    if num_steps < 1 or warm < 1:
        raise ValueError(f"growth needs a step before and a step after; got {warm} and {num_steps}")


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, loss_fn: LossFn, *, retain_graph: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """An ordinary step; returns the outputs and the loss, both with their graph."""
    inputs, targets = batch
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = loss_fn(outputs, targets)  # ()
    loss.backward(retain_graph=retain_graph)
    optimizer.step()
    return outputs, loss


def keep_loss(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, loss_fn: LossFn, kept: list[Any]
) -> None:
    """**Memory**: 4 bytes per step, and the nodes of the graph."""
    _, loss = train_step(model, optimizer, batch, loss_fn)
    kept.append(loss)


def keep_retained_loss(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, loss_fn: LossFn, kept: list[Any]
) -> None:
    """**Memory**: all activations of each step: `retain_graph=True` tells backward to free nothing."""
    _, loss = train_step(model, optimizer, batch, loss_fn, retain_graph=True)
    kept.append(loss)


def keep_outputs(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, loss_fn: LossFn, kept: list[Any]
) -> None:
    """**Memory**: the outputs of each step, and the nodes of the graph."""
    outputs, _ = train_step(model, optimizer, batch, loss_fn)
    kept.append(outputs)


def keep_validation_loss(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, loss_fn: LossFn, kept: list[Any]
) -> None:
    """**Memory**: all activations of each validation: no backward frees them."""
    inputs, targets = batch
    kept.append(loss_fn(model(inputs), targets))


def keep_number(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, loss_fn: LossFn, kept: list[Any]
) -> None:
    """**Memory**: none. On a GPU `item()` waits for the step; for a log, keep `loss.detach()` and read it later."""
    _, loss = train_step(model, optimizer, batch, loss_fn)
    kept.append(loss.item())


def keep_predictions(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, loss_fn: LossFn, kept: list[Any]
) -> None:
    """**Memory**: on the device none: what is kept of the outputs, here the choices, is moved to NumPy."""
    outputs, _ = train_step(model, optimizer, batch, loss_fn)
    kept.append(outputs.detach().argmax(-1).cpu().numpy().copy())


@torch.no_grad()
def keep_validation_number(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, loss_fn: LossFn, kept: list[Any]
) -> None:
    """**Memory**: none: `no_grad` builds no graph, and `item()` keeps no tensor."""
    inputs, targets = batch
    kept.append(loss_fn(model(inputs), targets).item())


LEAKS: dict[str, TrainingStep] = {
    "the loss": keep_loss,
    "the loss of a retained graph": keep_retained_loss,
    "the outputs": keep_outputs,
    "a validation loss": keep_validation_loss,
}
MENDED: dict[str, TrainingStep] = {
    "the loss": keep_number,
    "the loss of a retained graph": keep_number,
    "the outputs": keep_predictions,
    "a validation loss": keep_validation_number,
}
