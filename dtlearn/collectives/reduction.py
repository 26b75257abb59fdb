"""Reductions of two tensors."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .execute import Combine

_COMBINE: dict[str, Combine] = {
    "SUM": lambda mine, theirs: mine.add_(theirs),
    "AVG": lambda mine, theirs: mine.add_(theirs),  # divided at the end, by `finish`
    "PRODUCT": lambda mine, theirs: mine.mul_(theirs),
    "MAX": lambda mine, theirs: torch.maximum(mine, theirs, out=mine),
    "MIN": lambda mine, theirs: torch.minimum(mine, theirs, out=mine),
}


def combine(op: Any) -> Combine:
    """The function for a `dist.ReduceOp`. Raises ValueError for one that is not known here."""
    name = _name(op)
    if name not in _COMBINE:
        raise ValueError(f"op must be one of {', '.join(_COMBINE)}; got {name}")
    return _COMBINE[name]


def finish(tensor: torch.Tensor, op: Any, num_ranks: int) -> None:
    """The last touch on a complete reduction: AVG divides. Raises ValueError for a mean of whole numbers."""
    if _name(op) == "AVG":
        if not tensor.is_floating_point() and not tensor.is_complex():
            raise ValueError(f"a mean needs a floating-point tensor; got {tensor.dtype}")
        tensor.div_(num_ranks)


def _name(op: Any) -> str:
    return str(op).rsplit(".", 1)[-1].upper()


SUM = dist.ReduceOp.SUM
