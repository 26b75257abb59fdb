# expect: DTL-DIFFICULTY
# says: what has no gradient is left alone

from collections.abc import Sequence

import torch
import torch.distributed as dist


def global_norm(
    shards: Sequence[torch.Tensor],
    used: Sequence[int],
    replicated: Sequence[torch.Tensor],
    max_norm: float,
    group: dist.ProcessGroup | None = None,
) -> float:
    """Clip all gradients; return the norm that they had together."""
    for s in shards:
        if s.grad is None:
            s.grad = torch.zeros_like(s)
    own = {id(s): s.grad[:n] for s, n in zip(shards, used, strict=True) if s.grad is not None}
    whole = {id(p): p.grad for p in replicated if p.grad is not None}
    counted = [*own.values(), *(whole.values() if dist.get_rank(group) == 0 else ())]
    square = torch.zeros(())
    for gradient in counted:
        square += gradient.square().sum()
    dist.all_reduce(square, group=group)
    norm = square.sqrt().item()
    factor = min(1.0, max_norm / (norm + 1e-6))
    for gradient in (*own.values(), *whole.values()):
        gradient *= factor
    return norm
