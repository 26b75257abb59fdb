"""Gradients clipped by the norm of the whole model, where some parameters are divided and others are on every rank.

`dtlearn.sharing.clipping` adds up over ranks. Each element of the whole gradient counts once:

- a divided parameter: each rank counts its part;
- a replicated one (norms, positions, row-parallel biases): the first rank counts it. Counted by all, its square is in
  the sum t times, and the clipped step is too short, the more so the more ranks there are;
- copies of a key-value head: the first rank of those that have it;
- a tied parameter: once. Rows of padding have no gradient.

Source: Megatron-LM, `param_is_not_tensor_parallel_duplicate` in `core/tensor_parallel/layers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing import clipping
from dtlearn.sharing.shards import rank_and_size

from .sequence_parallel import require_reduced


@torch.no_grad()
def clip_grad_norm_(
    module: nn.Module,
    max_norm: float,
    norm_type: float = 2.0,
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
        norm_type: p of the norm, as torch's; `math.inf`: the largest absolute value.
        group: the ranks among which it is divided; None: all ranks.
        error_if_nonfinite: a norm that is infinite or NaN is an error.

    Returns:
        The norm before clipping, (), the same on all ranks.

    Raises:
        ValueError: `max_norm` or `norm_type` is not positive, or gradients of sequence-parallel parameters are still
            partial sums.
        RuntimeError: with `error_if_nonfinite`, on all ranks.
    """
    require_reduced(module)
    return clipping.clip_grad_norm_(
        module.parameters(),
        max_norm,
        norm_type,
        counted=_counted_here(module, group),
        groups=_groups(group),
        error_if_nonfinite=error_if_nonfinite,
    )


@torch.no_grad()
def gradient_norm(module: nn.Module, norm_type: float = 2.0, *, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The norm of the whole model's gradient, (), the same on all ranks: each element once.

    **Communication**, **Memory** and arguments: as `clip_grad_norm_`.
    """
    require_reduced(module)
    counted, groups = _counted_here(module, group), _groups(group)
    return clipping.global_norm(module.parameters(), norm_type, counted=counted, groups=groups)


@torch.no_grad()
def naive_gradient_norm(module: nn.Module, *, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The norm of all that all ranks have: replicated parameters count t times. Too large, without an error.

    **Communication**, **Memory** and arguments: as `clip_grad_norm_`.
    """
    return clipping.global_norm(module.parameters(), groups=_groups(group))


def _groups(group: dist.ProcessGroup | None) -> Sequence[dist.ProcessGroup | None]:
    return [group] if rank_and_size(group)[1] > 1 else []


def _counted_here(module: nn.Module, group: dist.ProcessGroup | None) -> list[nn.Parameter]:
    rank, num_ranks = rank_and_size(group)
    return [p for p, is_divided, copies in _held(module) if rank % (copies if is_divided else num_ranks) == 0]


def _held(module: nn.Module) -> Iterator[tuple[nn.Parameter, bool, int]]:
    """Each parameter once, whether it is divided, and how many ranks have the same part."""
    seen = set[int]()
    for part in module.modules():
        dims = getattr(part, "split_dims", {})
        for name, parameter in part.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield parameter, dims.get(name) is not None, getattr(part, "num_copies", 1)
