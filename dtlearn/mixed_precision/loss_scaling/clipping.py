"""Gradients clipped by their global norm, over all ranks that have a part of them, and after they were unscaled.

Scaled gradients are S times too long: clipped to the same norm, they come out of `unscale_` S times too short, and
training all but stops, without an error. The norm is that of `dtlearn.sharing.clipping`: it is taken in float32, of
16-bit gradients too, where torch's takes it in the gradients' own format.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
import torch.distributed as dist

from dtlearn.sharing import clipping


@torch.no_grad()
def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    *,
    group: dist.ProcessGroup | None = None,
    replicated: Collection[torch.Tensor] = (),
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """Scale all gradients down to `max_norm`, if together they are longer; as torch's, and over ranks.

    Call it after `scaler.unscale_(optimizer)`. A gradient that overflowed makes the norm infinite or
    NaN; `step` then skips, as the scaler has noted it already.

    **Communication**: none without `group`. With it, one all-reduce of 4 bytes; 8 if a parameter is float64.
    **Memory**: 4 bytes per gradient.

    Args:
        parameters: those that this rank has, all or a shard, or one. All ranks call it.
        max_norm: of all gradients of all ranks, as one vector.
        norm_type: p of the norm, as torch's; `math.inf`: the largest absolute value.
        group: ranks whose parameters belong to one model, such as its shards; None: this rank has
            all of them. After DDP, too: every rank has the same gradients.
        replicated: those of `parameters` that every rank of the group has, with the same gradient
            (biases and norms under tensor parallelism, say): they are counted on its first rank only.
        error_if_nonfinite: a norm that is infinite or NaN is an error.

    Returns:
        The norm before clipping, (), float32 or float64, the same on all ranks.

    Raises:
        ValueError: `max_norm` or `norm_type` is not positive.
        RuntimeError: with `error_if_nonfinite`, on all ranks.
    """
    parameters = clipping.as_list(parameters)
    counted = parameters if group is None else clipping.count_once(parameters, replicated, group=group)
    groups = [] if group is None else [group]
    return clipping.clip_grad_norm_(
        parameters, max_norm, norm_type, counted=counted, groups=groups, error_if_nonfinite=error_if_nonfinite
    )


@torch.no_grad()
def global_norm(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    norm_type: float = 2.0,
    *,
    group: dist.ProcessGroup | None = None,
    replicated: Collection[torch.Tensor] = (),
) -> torch.Tensor:
    """The norm of all gradients of all ranks, each parameter counted once, (), float32 or float64.

    **Communication** and arguments: as `clip_grad_norm_`.
    """
    parameters = clipping.as_list(parameters)
    if group is None:
        return clipping.global_norm(parameters, norm_type)
    counted = clipping.count_once(parameters, replicated, group=group)
    return clipping.global_norm(parameters, norm_type, counted=counted, groups=[group])
