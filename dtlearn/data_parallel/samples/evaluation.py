"""Evaluation over many ranks, in which every sample counts once.

Two things go wrong if one evaluates as one trains. A padded sampler repeats samples, so some count twice. And a mean
over ranks of means over batches gives a sample in a small batch more weight than one in a large one, and is no F1.

    evaluate        each rank adds up its own samples, unpadded; one all-reduce adds the sums
    mean_of_means   what goes wrong

Pass the bare model, not a data-parallel wrapper around it: PyTorch's broadcasts the model's buffers
(of BatchNorm, say) before each forward, in eval mode too, and ranks with different numbers of batches then hang.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.models.reference import Batch, LossFn

from .metrics import Metrics


class Means(NamedTuple):
    """The result of `mean_of_means`: the names of `Metrics`, and other numbers."""

    loss: float
    accuracy: float
    macro_f1: float


@contextmanager
def evaluating(model: nn.Module) -> Iterator[torch.device]:
    """Eval mode, no gradients; afterwards every part of the model is in the mode it was in. Yields its device.

    Raises:
        ValueError: the model is a data-parallel wrapper.
    """
    if hasattr(model, "no_sync") and isinstance(getattr(model, "module", None), nn.Module):
        raise ValueError(
            f"pass model.module, not the {type(model).__name__} around it: a wrapper may communicate in each forward, "
            "and ranks with different numbers of batches would hang"
        )
    modes = [(module, module.training) for module in model.modules()]  # some parts may be frozen in eval mode
    model.eval()
    try:
        with torch.no_grad():
            yield next((p.device for p in model.parameters()), torch.device("cpu"))
    finally:
        for module, mode in modes:
            module.training = mode


def evaluate_locally(
    model: nn.Module, batches: Iterable[Batch], loss_fn: LossFn = F.cross_entropy, *, num_classes: int
) -> Metrics:
    """Evaluate in this process: the reference, and each rank's part of `evaluate`.

    Args:
        model: gives (B, C) scores; evaluated in eval mode, and left as it was.
        batches: inputs (B, ...) and targets (B,); moved to the model's device.
        loss_fn: mean loss of (outputs, targets) over the samples of a batch.
        num_classes: C; needed because a rank may have no batch to see it from.

    Raises:
        ValueError: the model is a wrapper, gives other than `num_classes` scores, or a target is no class.
    """
    return sum(_per_batch(model, batches, loss_fn, num_classes), Metrics.nothing(num_classes))


def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    loss_fn: LossFn = F.cross_entropy,
    *,
    num_classes: int,
    num_samples: int | None = None,
    group: dist.ProcessGroup | None = None,
) -> Metrics:
    """Evaluate on all ranks: the metrics of the whole data set, the same on every rank.

    Each rank brings the batches of its `EvaluationSampler`; it may have more than others, or none.

    Communication: one all-reduce of the sums, 8 (1 + 3 C) bytes of float64, after the last batch; nothing per batch.
        float64, as float32 counts wrongly from 2 ** 24 samples on.
    Memory: 8 (1 + 3 C) bytes, and the activations of one batch.

    Args:
        model, batches, loss_fn, num_classes: see `evaluate_locally`; the same model on every rank.
        num_samples: of the whole data set, if the count is to be checked.
        group: default the world.

    Raises:
        ValueError: see `evaluate_locally`; or `num_samples` were expected and others counted: on every rank.
    """
    mine = evaluate_locally(model, batches, loss_fn, num_classes=num_classes)
    metrics = Metrics.unpack(_sum_over_ranks(mine.pack(), model, group))
    if num_samples is not None and metrics.count != num_samples:
        raise ValueError(
            f"{metrics.count} samples were counted in a data set of {num_samples}: use an "
            "EvaluationSampler, which repeats and drops nothing, and no drop_last in the DataLoader"
        )
    return metrics


def mean_of_means(
    model: nn.Module,
    batches: Iterable[Batch],
    loss_fn: LossFn = F.cross_entropy,
    *,
    num_classes: int,
    group: dist.ProcessGroup | None = None,
) -> Means:
    """The naive version, for contrast: the mean over ranks of each rank's mean over its batches.

    Right for loss and accuracy if all batches of all ranks are equally large and nothing is repeated; for F1 never,
    but by accident. A rank without samples makes it NaN.

    Communication: one all-reduce of 24 bytes (float64), after the last batch.
    Memory: a few numbers per batch, and the activations of one batch.

    Args, Raises: those of `evaluate`.
    """
    per_batch = [(m.loss, m.accuracy, m.macro_f1) for m in _per_batch(model, batches, loss_fn, num_classes)]
    mine = torch.tensor(per_batch, dtype=torch.float64).reshape(-1, 3).mean(dim=0)  # (3,)
    total = _sum_over_ranks(mine, model, group)
    size = dist.get_world_size(group) if _has_ranks(group) else 1
    return Means(*(total / size).tolist())


def _per_batch(model: nn.Module, batches: Iterable[Batch], loss_fn: LossFn, num_classes: int) -> Iterator[Metrics]:
    with evaluating(model) as device:
        for inputs, targets in batches:
            outputs = model(inputs.to(device))  # (B, C)
            if outputs.shape[1:] != (num_classes,):
                raise ValueError(f"num_classes is {num_classes}, and the model gives {tuple(outputs.shape)}")
            yield Metrics.of(outputs, targets.to(device), loss_fn)


def _has_ranks(group: dist.ProcessGroup | None) -> bool:
    """Whether there is a group; without one, a single process has all sums."""
    return group is not None or (dist.is_available() and dist.is_initialized())


def _sum_over_ranks(sums: torch.Tensor, model: nn.Module, group: dist.ProcessGroup | None) -> torch.Tensor:
    if not _has_ranks(group):
        return sums
    # On the device of the group's backend: where the model is.
    device = next((p.device for p in model.parameters()), sums.device)
    on_device = sums.to(device)
    dist.all_reduce(on_device, group=group)
    return on_device.cpu()
