# expect: DTL-DIFFICULTY
# says: the norm is that of all gradients in the list

import math

import torch
import torch.distributed as dist


def clip_over_ranks(shards, replicated, scale, max_norm):
    gradients = [p.grad for p in (*shards, *replicated) if p.grad is not None]
    for gradient in gradients:
        gradient /= scale
    mine = [*shards[:2], *(replicated[:2] if dist.get_rank() == 0 else [])]
    square = sum((p.grad.square().sum() for p in mine if p.grad is not None), torch.zeros(()))
    dist.all_reduce(square)
    norm = square.sqrt().item()
    if not math.isfinite(norm):
        return None
    for gradient in gradients:
        gradient *= min(1.0, max_norm / (norm + 1e-6))
    return norm
