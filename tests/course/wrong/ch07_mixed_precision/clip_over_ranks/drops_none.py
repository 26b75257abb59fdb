# expect: DTL-RAISED
# says: 'NoneType' object has no attribute 'square'

import math

import torch
import torch.distributed as dist


def clip_over_ranks(shards, replicated, scale, max_norm):
    mine = (*shards, *replicated) if dist.get_rank() == 0 else shards
    square = sum((p.grad.square().sum() for p in mine), torch.zeros(())) / scale**2
    dist.all_reduce(square)
    norm = square.sqrt().item()
    if not math.isfinite(norm):
        return None
    for parameter in (*shards, *replicated):
        parameter.grad *= min(1.0, max_norm / norm) / scale
    return norm
