# expect: DTL-RAISED
# says: stack expects a non-empty TensorList
# says: a rank may have no shards
import math
from collections.abc import Sequence

import torch
import torch.distributed as dist


def clip_over_ranks(
    shards: Sequence[torch.Tensor],
    replicated: Sequence[torch.Tensor],
    scale: float,
    max_norm: float,
) -> float | None:
    """Unscale and clip all gradients; return the norm, or None to skip the step."""
    gradients = [p.grad for p in (*shards, *replicated) if p.grad is not None]
    for gradient in gradients:
        gradient /= scale
    torch.stack([g.norm() for g in gradients])
    counted = (*shards, *replicated) if dist.get_rank() == 0 else shards
    square = torch.zeros(())
    for parameter in counted:
        if parameter.grad is not None:
            square += parameter.grad.square().sum()
    dist.all_reduce(square)
    norm = square.sqrt().item()
    if not math.isfinite(norm):  # inf and NaN survive every sum
        return None
    if norm > max_norm:
        for gradient in gradients:
            gradient *= max_norm / norm
    return norm
