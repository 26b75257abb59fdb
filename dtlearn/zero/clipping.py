"""Gradients clipped by their global norm, where every rank has pieces of them: what counts where.

`dtlearn.sharing.clipping` adds up over ranks. What counts is each element of the gradient, once:

- padding at the end of a bucket is no gradient, and pieces do not have it;
- a tied parameter is one parameter and has one piece on each rank;
- what every rank has whole (`replicated`) is counted on the first rank only;
- under hybrid sharding the ranks of one shard group have all of the gradient, and their replicas have it again: the
  group is the shard group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
import torch.distributed as dist

from dtlearn.sharing import clipping


@torch.no_grad()
def clip_grad_norm_(
    pieces: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    *,
    group: dist.ProcessGroup | None = None,
    replicated: Collection[torch.Tensor] = (),
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """Scale the gradients of all ranks down to `max_norm`, if together they are longer.

    Call it when the pieces have their reduced gradients: in stage 1 after `shard_gradients()`, in
    stages 2 and 3 after `backward()`; after `scaler.unscale_(optimizer)`, if there is a loss scaler;
    before `optimizer.step()`.

    **Communication**: one all-reduce of 4 bytes over `group`; 8 if a piece is float64.
    **Memory**: 4 bytes per piece, while the norm is computed.

    Args:
        pieces: what this rank has of the parameters, each 1-D, empty ones too; or one piece. All
            ranks of the group call it.
        max_norm: of the gradients of all ranks, as one vector.
        norm_type: p of the norm, as torch's; `math.inf`: the largest absolute value.
        group: ranks whose pieces make up the model once; None: all ranks. Under hybrid sharding it
            is the shard group.
        replicated: those of `pieces` that are whole parameters, with one gradient on all ranks.
        error_if_nonfinite: a norm that is infinite or NaN is an error.

    Returns:
        The norm before clipping, (), float32 or float64, the same on all ranks of the group.

    Raises:
        ValueError: `max_norm` or `norm_type` is not positive.
        RuntimeError: with `error_if_nonfinite`, on all ranks.
    """
    pieces = clipping.as_list(pieces)
    counted = clipping.count_once(pieces, replicated, group=group)
    return clipping.clip_grad_norm_(
        pieces, max_norm, norm_type, counted=counted, groups=[group], error_if_nonfinite=error_if_nonfinite
    )


@torch.no_grad()
def global_norm(
    pieces: torch.Tensor | Iterable[torch.Tensor],
    norm_type: float = 2.0,
    *,
    group: dist.ProcessGroup | None = None,
    replicated: Collection[torch.Tensor] = (),
) -> torch.Tensor:
    """The norm of the gradients of all ranks, (), float32 or float64: each element once.

    **Communication**, **Memory** and arguments: as `clip_grad_norm_`.
    """
    pieces = clipping.as_list(pieces)
    counted = clipping.count_once(pieces, replicated, group=group)
    return clipping.global_norm(pieces, norm_type, counted=counted, groups=[group])


@torch.no_grad()
def clip_by_local_norm_(pieces: torch.Tensor | Iterable[torch.Tensor], max_norm: float) -> torch.Tensor:
    """The naive way: each rank clips by the norm of what it has, as torch's does on pieces.

    Each rank scales by a factor of its own, so the gradient changes its direction, not only its length; and
    the norm of the whole is up to sqrt(N) times `max_norm`. There is no error.

    **Communication**: none. **Memory**: 4 bytes per piece.

    Args:
        pieces: what this rank has of the parameters, each 1-D.
        max_norm: of the gradients of this rank.

    Returns:
        The norm of this rank's gradients before, (), another one on each rank.
    """
    return clipping.clip_grad_norm_(pieces, max_norm)
