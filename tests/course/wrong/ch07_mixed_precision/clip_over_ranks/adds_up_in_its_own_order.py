# expect: DTL-MISTAKE
# says: differ in their last digits
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
    counted = (*shards, *replicated) if dist.get_rank() == 0 else shards
    square = torch.zeros(())
    for parameter in counted:
        if parameter.grad is not None:
            square += parameter.grad.square().sum()
    parts = [torch.zeros(()) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, square)
    r = dist.get_rank()
    square = sum(parts[r:] + parts[:r])
    norm = square.sqrt().item()
    if not math.isfinite(norm):  # inf and NaN survive every sum
        return None
    if norm > max_norm:
        for gradient in gradients:
            gradient *= max_norm / norm
    return norm
