"""Gradients clipped by the norm of the whole model, where some parameters are divided and others are on every rank.

Squares add up over ranks, norms do not. So each rank adds up the squares of what it has, one all-reduce of a single
number makes the square of the whole norm, and all ranks scale by the same factor. Each element of the whole gradient
counts once:

- a divided parameter: each rank counts its part;
- a replicated one (norms, positions, row-parallel biases): the first rank counts it. Counted by all, its square is in
  the sum t times, and the clipped step is too short, the more so the more ranks there are;
- copies of a key-value head: the first rank of those that have it;
- a tied parameter: once. Rows of padding have no gradient.

Source: Megatron-LM, `param_is_not_tensor_parallel_duplicate` in `core/tensor_parallel/layers.py`, and
`core/optimizer/clip_grads.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.shards import rank_and_size

from .sequence_parallel import require_reduced

_EPSILON = 1e-6  # torch's: a norm of 0 gives a factor of 1, not a division by 0


@torch.no_grad()
def clip_grad_norm_(
    module: nn.Module,
    max_norm: float,
    *,
    group: dist.ProcessGroup | None = None,
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """Scale the gradients on all ranks down to `max_norm`, if together they are longer.

    Call it after backward, and under sequence parallelism after `reduce_sequence_parallel_gradients`.

    **Communication**: one all-reduce of 4 bytes over `group`; 8 if a parameter is float64.
    **Memory**: 4 bytes per parameter, while the norm is computed.

    Args:
        module: the model, of which each rank has its part. All ranks of the group call it.
        max_norm: of the gradient of the whole model.
        group: the ranks among which it is divided; None: all ranks.
        error_if_nonfinite: a norm that is infinite or NaN is an error.

    Returns:
        The norm before clipping, (), the same on all ranks.

    Raises:
        ValueError: `max_norm` is not positive, or gradients of sequence-parallel parameters are still partial sums.
        RuntimeError: with `error_if_nonfinite`, on all ranks.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm must be positive; got {max_norm}")
    norm = gradient_norm(module, group=group)
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError(f"the norm of the gradients of all ranks is {norm.item()}: the loss is not finite")
    factor = (max_norm / (norm + _EPSILON)).clamp(max=1.0)
    for parameter in module.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(factor)
    return norm


@torch.no_grad()
def gradient_norm(module: nn.Module, *, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The Euclidean norm of the whole model's gradient, (), the same on all ranks: each element once.

    **Communication**, **Memory** and arguments: as `clip_grad_norm_`.
    """
    require_reduced(module)
    rank, num_ranks = rank_and_size(group)
    counted = [p for p, is_divided, copies in _held(module) if rank % (copies if is_divided else num_ranks) == 0]
    return _summed(counted, module, group)


@torch.no_grad()
def naive_gradient_norm(module: nn.Module, *, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The norm of all that all ranks have: replicated parameters count t times. Too large, and there is no error.

    **Communication**, **Memory** and arguments: as `clip_grad_norm_`.
    """
    return _summed(list(module.parameters()), module, group)


def _held(module: nn.Module) -> Iterator[tuple[nn.Parameter, bool, int]]:
    """Each parameter once, whether it is divided, and how many ranks have the same part."""
    seen = set[int]()
    for part in module.modules():
        dims = getattr(part, "split_dims", {})
        for name, parameter in part.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield parameter, dims.get(name) is not None, getattr(part, "num_copies", 1)


def _summed(counted: Iterable[nn.Parameter], module: nn.Module, group: dist.ProcessGroup | None) -> torch.Tensor:
    # By the parameters, not by the gradients: a rank that counts none must send as many bytes as the others.
    known = list(module.parameters())
    dtype = torch.float64 if any(p.dtype == torch.float64 for p in known) else torch.float32
    square = torch.zeros((), dtype=dtype, device=known[0].device)
    for parameter in counted:
        if parameter.grad is not None:
            square += torch.linalg.vector_norm(parameter.grad, dtype=dtype).square()
    if rank_and_size(group)[1] > 1:
        dist.all_reduce(square, group=group)
    return square.sqrt()
