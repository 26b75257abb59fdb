"""Gradients clipped by their global norm, where every rank has a part of them.

A rank's pieces are a part of one long vector: squares add up over ranks, norms do not. So each rank adds up the squares
of its own elements, one all-reduce of a single number makes the square of the whole norm, and all ranks scale by the
same factor. What counts is each element of the gradient, once:

- padding at the end of a bucket is no gradient, and pieces do not have it;
- a tied parameter is one parameter and has one piece on each rank;
- what every rank has whole (`replicated`) is counted on the first rank only;
- under hybrid sharding the ranks of one shard group have all of the gradient, and their replicas have it again: the
  group is the shard group.

Sources: Pascanu, Mikolov & Bengio, "On the difficulty of training recurrent neural networks", 1211.5063;
`torch.nn.utils.clip_grad_norm_`; Megatron-LM's `core/optimizer/clip_grads.py`, which leaves out duplicates by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
import torch.distributed as dist

_EPSILON = 1e-6  # torch's: a norm of 0 gives a factor of 1, not a division by 0


@torch.no_grad()
def clip_grad_norm_(
    pieces: Iterable[torch.Tensor],
    max_norm: float,
    *,
    group: dist.ProcessGroup | None = None,
    replicated: Collection[torch.Tensor] = (),
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """Scale the gradients of all ranks down to `max_norm`, if together they are longer.

    Call it when the pieces have their reduced gradients: in stage 1 after `shard_gradients()`, in
    stages 2 and 3 after `backward()`; after `scaler.unscale_(optimizer)`, if there is a loss scaler;
    before `optimizer.step()`.

    **Communication**: one all-reduce (sum) of 4 bytes over `group`; 8 if a piece is float64.
    **Memory**: 4 bytes per piece, while the norm is computed.

    Args:
        pieces: what this rank has of the parameters, each 1-D, empty ones too. All ranks of the
            group call it.
        max_norm: of the gradients of all ranks, as one vector.
        group: ranks whose pieces make up the model once; None: all ranks. Under hybrid sharding it
            is the shard group.
        replicated: those of `pieces` that are whole parameters, with one gradient on all ranks.
        error_if_nonfinite: a norm that is infinite or NaN is an error.

    Returns:
        The norm before clipping, (), float32 or float64, the same on all ranks of the group.

    Raises:
        ValueError: `max_norm` is not positive.
        RuntimeError: with `error_if_nonfinite`, on all ranks.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm must be positive; got {max_norm}")
    pieces = list(pieces)
    norm = global_norm(pieces, group=group, replicated=replicated)
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError(
            f"the norm of the gradients of all ranks is {norm.item()}: a step that a loss scaler is "
            "to skip, or a loss that is not finite on some rank. Leave error_if_nonfinite=False with a "
            "scaler"
        )
    _scale(pieces, max_norm, norm)
    return norm


@torch.no_grad()
def global_norm(
    pieces: Iterable[torch.Tensor],
    *,
    group: dist.ProcessGroup | None = None,
    replicated: Collection[torch.Tensor] = (),
) -> torch.Tensor:
    """The Euclidean norm of the gradients of all ranks, (), float32 or float64: each element once.

    **Communication**, **Memory** and arguments: as `clip_grad_norm_`.
    """
    pieces = list(pieces)
    counted = pieces
    if dist.get_rank(group) > 0:  # by identity: `in` would compare values
        counted_on_first = {id(piece) for piece in replicated}
        counted = [piece for piece in pieces if id(piece) not in counted_on_first]
    square = local_norm(counted, like=pieces).square()
    if dist.get_backend(group) == "nccl":
        square = square.cuda()  # of pieces on the host
    dist.all_reduce(square, group=group)  # by ranks that have nothing, too: the others wait
    return square.sqrt()


@torch.no_grad()
def local_norm(pieces: Iterable[torch.Tensor], *, like: Iterable[torch.Tensor] = ()) -> torch.Tensor:
    """The norm of this rank's gradients alone, (), float32; float64 if a piece is.

    **Communication**: none. **Memory**: 4 bytes per piece.

    Args:
        pieces: those that count, each once.
        like: pieces that do not count, but say the device and the format.
    """
    pieces = list({id(piece): piece for piece in pieces}.values())
    known = [*pieces, *like]
    device = known[0].device if known else torch.device("cpu")
    # By the pieces, not by the gradients: a rank that has none must send as many bytes as the others.
    dtype = torch.float64 if any(p.dtype == torch.float64 for p in known) else torch.float32
    gradients = [p.grad for p in pieces if p.grad is not None and p.grad.numel()]
    norms = [torch.linalg.vector_norm(gradient, dtype=dtype).to(device) for gradient in gradients]
    if not norms:
        return torch.zeros((), dtype=dtype, device=device)
    norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


@torch.no_grad()
def clip_by_local_norm_(pieces: Iterable[torch.Tensor], max_norm: float) -> torch.Tensor:
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
    pieces = list(pieces)
    norm = local_norm(pieces)
    _scale(pieces, max_norm, norm)
    return norm


def _scale(pieces: Iterable[torch.Tensor], max_norm: float, norm: torch.Tensor) -> None:
    factor = (max_norm / (norm + _EPSILON)).clamp(max=1.0)
    for piece in {id(piece): piece for piece in pieces}.values():
        if piece.grad is not None:
            piece.grad.mul_(factor.to(piece.grad.device))
