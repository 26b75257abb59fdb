"""The naive loss of divided logits: gather them, and compute what one process computes, on every rank."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F

from ..mappings import gather_from_tensor_parallel_region


def gathered_cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    num_classes: int | None = None,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """`vocabulary_parallel_cross_entropy` the naive way: as right, and the logits are whole on every rank.

    **Communication**: forward: one all-gather of the logits, N V elements in all; backward: none.
    **Memory**: N V elements for the gathered logits, as many for their softmax, and for their gradient.

    Args:
        logits, targets, ignore_index, label_smoothing, reduction, num_classes, group: as there.
    """
    full = gather_from_tensor_parallel_region(logits, group=group)[..., :num_classes]  # (B, T, V)
    # F.cross_entropy has the classes in dim 1.
    losses = F.cross_entropy(
        full.flatten(0, -2),
        targets.flatten(),
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
    )
    return losses.view_as(targets) if reduction == "none" else losses
