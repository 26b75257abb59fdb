# expect: DTL-RAISED
# says: float division by zero

import math

import torch
import torch.distributed as dist


def clip_over_ranks(shards, replicated, scale, max_norm):
    gradients = [p.grad for p in (*shards, *replicated) if p.grad is not None]
    for gradient in gradients:
        gradient /= scale
    mine = (*shards, *replicated) if dist.get_rank() == 0 else shards
    square = sum((p.grad.square().sum() for p in mine if p.grad is not None), torch.zeros(()))
    dist.all_reduce(square)
    norm = square.sqrt().item()
    if not math.isfinite(norm):
        return None
    for gradient in gradients:
        gradient *= min(1.0, max_norm / norm)
    return norm
