"""Gradients clipped by their global norm, over all ranks that have a part of them, and after they were unscaled.

Scaled gradients are S times too long: clipped to the same norm, they come out of `unscale_` S times too short, and
training all but stops, without an error.

Sources: Pascanu, Mikolov & Bengio, "On the difficulty of training recurrent neural networks", 1211.5063;
`torch.nn.utils.clip_grad_norm_`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
import torch.distributed as dist


@torch.no_grad()
def clip_grad_norm_(
    parameters: Iterable[torch.Tensor],
    max_norm: float,
    *,
    group: dist.ProcessGroup | None = None,
    replicated: Collection[torch.Tensor] = (),
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """Scale all gradients down to `max_norm`, if together they are longer; as torch's, and over ranks.

    Call it after `scaler.unscale_(optimizer)`. A gradient that overflowed makes the norm infinite or
    NaN; `step` then skips, as the scaler has noted it already.

    **Communication**: none without `group`. With it, one all-reduce (sum) of 4 bytes.
    **Memory**: 4 bytes per gradient.

    Args:
        parameters: those that this rank has, all or a shard. All ranks call it.
        max_norm: of all gradients of all ranks, as one vector.
        group: ranks whose parameters belong to one model, such as its shards; None: this rank has
            all of them. After DDP, too: every rank has the same gradients.
        replicated: those of `parameters` that every rank of the group has, with the same gradient
            (biases and norms under tensor parallelism, say): they are counted on its first rank only.
        error_if_nonfinite: a norm that is infinite or NaN is an error.

    Returns:
        The norm before clipping, (), float32, the same on all ranks.

    Raises:
        ValueError: `max_norm` is not positive.
        RuntimeError: with `error_if_nonfinite`, on all ranks.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm must be positive; got {max_norm}")
    parameters = list(parameters)
    norm = global_norm(parameters, group=group, replicated=replicated)
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError(
            f"the norm of the gradients is {norm.item()}: a step that a loss scaler is to skip, or a "
            "loss that is not finite. Leave error_if_nonfinite=False with a scaler"
        )
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor.to(parameter.device))
    return norm


@torch.no_grad()
def global_norm(
    parameters: Iterable[torch.Tensor],
    *,
    group: dist.ProcessGroup | None = None,
    replicated: Collection[torch.Tensor] = (),
) -> torch.Tensor:
    """The Euclidean norm of all gradients of all ranks, each parameter counted once, (), float32.

    Squares add up: sqrt(sum over ranks of |g_rank|^2). Norms do not. Each is taken in float32, that
    of a 16-bit gradient too; torch's takes it in the gradient's own format.

    **Communication** and arguments: as `clip_grad_norm_`.
    """
    parameters = list(parameters)
    device = parameters[0].device if parameters else torch.device("cpu")
    if group is not None and dist.get_rank(group) > 0:
        parameters = _without(parameters, replicated)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = [torch.linalg.vector_norm(g, dtype=torch.float32).to(device) for g in gradients]
    norm = torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros((), device=device)
    if group is None:
        return norm
    square = norm.square()
    dist.all_reduce(square, group=group)
    return square.sqrt()


def _without(parameters: list[torch.Tensor], left_out: Collection[torch.Tensor]) -> list[torch.Tensor]:
    """By identity: `in` would compare values."""
    identities = {id(parameter) for parameter in left_out}
    return [parameter for parameter in parameters if id(parameter) not in identities]
