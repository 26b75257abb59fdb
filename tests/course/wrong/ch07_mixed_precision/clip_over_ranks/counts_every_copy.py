# expect: DTL-VALUE-COUNTED-AGAIN
# says: once on each rank

import math

import torch
import torch.distributed as dist


def clip_over_ranks(shards, replicated, scale, max_norm):
    gradients = [p.grad for p in (*shards, *replicated) if p.grad is not None]
    for gradient in gradients:
        gradient /= scale
    square = sum((gradient.square().sum() for gradient in gradients), torch.zeros(()))
    dist.all_reduce(square)
    norm = square.sqrt().item()
    if not math.isfinite(norm):
        return None
    for gradient in gradients:
        gradient *= min(1.0, max_norm / norm)
    return norm
