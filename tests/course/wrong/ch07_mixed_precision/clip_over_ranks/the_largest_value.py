# expect: DTL-VALUE-OTHER-NORM
# says: the largest absolute value

import math

import torch
import torch.distributed as dist


def clip_over_ranks(shards, replicated, scale, max_norm):
    gradients = [p.grad for p in (*shards, *replicated) if p.grad is not None]
    for gradient in gradients:
        gradient /= scale
    mine = (*shards, *replicated) if dist.get_rank() == 0 else shards
    largest = torch.zeros(())
    for p in mine:
        if p.grad is not None:
            largest = torch.maximum(largest, p.grad.abs().max())
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    norm = largest.item()
    if not math.isfinite(norm):
        return None
    for gradient in gradients:
        gradient *= min(1.0, max_norm / norm) if norm else 1.0
    return norm
