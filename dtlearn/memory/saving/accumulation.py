"""Gradient accumulation: the gradient of a large batch with the activations of a small one.

A batch is cut into micro-batches. Each runs forward and backward before the next one begins, and `.grad` adds up what
they give. The naive version adds up the losses instead, and then every graph lives until the one backward at the end.

Reference: PyTorch, "Automatic Mixed Precision examples", section "Gradient accumulation". Weights of micro-batches that
have different numbers of terms: Hugging Face transformers #34191.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from dtlearn.models.reference import Batch, LossFn


def accumulate_losses(
    model: nn.Module,
    batch: Batch,
    loss_fn: LossFn,
    num_microbatches: int,
    *,
    num_terms: Callable[[torch.Tensor], int] = len,
) -> torch.Tensor:
    """The naive version: add up the losses of the micro-batches, then one backward. The gradient is right.

    **Communication** and arguments: as `accumulate_gradients`.
    **Memory**: nothing is saved. The sum is the root of the graphs of all micro-batches, so their
    activations live together until backward: as many bytes as those of the whole batch.
    """
    mean = torch.zeros((), device=batch[0].device)
    for inputs, targets, share in microbatches(batch, num_microbatches, num_terms):
        mean = mean + share * loss_fn(model(inputs), targets)
    mean.backward()  # only now are the graphs freed
    return mean.detach()


def accumulate_gradients(
    model: nn.Module,
    batch: Batch,
    loss_fn: LossFn,
    num_microbatches: int,
    *,
    num_terms: Callable[[torch.Tensor], int] = len,
) -> torch.Tensor:
    """Add the gradient of the whole batch to `.grad`, one micro-batch at a time; returns the mean loss, ().

    **Communication**: none. Under DDP that of one backward: all micro-batches but the last run in
    `model.no_sync()`.
    **Memory**: the activations of the largest micro-batch, ceil(B / k) of B samples. From the second
    micro-batch on, all gradients are there during forward and backward, and each parameter's new
    gradient for a moment beside them. Without accumulation the gradients come only as activations
    go. So where the activations are few beside the gradients, the peak rises.

    Args:
        model: the one thing that changes is BatchNorm, which normalizes each micro-batch by itself.
        batch: inputs and targets of the whole batch; both start with the batch dimension.
        loss_fn: mean loss of (outputs, targets).
        num_microbatches: k; 1 is an ordinary step.
        num_terms: of targets: how many terms `loss_fn` takes the mean of. `len` counts samples; for
            a loss that ignores padding, `lambda targets: int((targets != -100).sum())`.

    Raises:
        ValueError: see `microbatches`.
    """
    losses, parts = [], microbatches(batch, num_microbatches, num_terms)
    for number, (inputs, targets, share) in enumerate(parts, 1):
        with nullcontext() if number == num_microbatches else _no_sync(model):
            loss = share * loss_fn(model(inputs), targets)
            loss.backward()  # frees what this micro-batch has saved
        losses.append(loss.detach())  # without its graph
    return torch.stack(losses).sum()


def microbatches(
    batch: Batch, num_microbatches: int, num_terms: Callable[[torch.Tensor], int] = len
) -> Iterator[tuple[torch.Tensor, torch.Tensor, float]]:
    """The batch in k parts, as views: inputs, targets, and the part's share of the mean.

    Sizes differ by at most one sample. A share is 1 / k only if all parts have equally many terms.

    Raises:
        ValueError: fewer samples than micro-batches, no micro-batch, inputs and targets of different lengths, or a
            part without terms, whose mean would be 0 / 0.
    """
    inputs, targets = batch
    if len(inputs) != len(targets):
        raise ValueError(f"inputs have {len(inputs)} samples, targets {len(targets)}")
    if not 1 <= num_microbatches <= len(inputs):
        raise ValueError(
            f"num_microbatches must be from 1 to the batch's {len(inputs)} samples; got {num_microbatches}"
        )
    parts = [part.tensor_split(num_microbatches) for part in (inputs, targets)]
    counts = [num_terms(part) for part in parts[1]]
    if 0 in counts:
        raise ValueError(f"micro-batch {counts.index(0)} has no terms: its mean loss is 0 / 0. Use fewer micro-batches")
    return ((x, y, count / sum(counts)) for x, y, count in zip(*parts, counts, strict=True))


def _no_sync(model: nn.Module) -> AbstractContextManager[None]:
    """`no_sync()` of a data-parallel wrapper; for any other model nothing."""
    no_sync: Callable[[], AbstractContextManager[None]] = getattr(model, "no_sync", nullcontext)
    return no_sync()
