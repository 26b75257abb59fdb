# expect: DTL-COLL-SKIP
# says: all_reduce


import torch
import torch.distributed as dist


def clip_over_ranks(shards, replicated, scale, max_norm):
    gradients = [p.grad for p in (*shards, *replicated) if p.grad is not None]
    if not all(gradient.isfinite().all() for gradient in gradients):
        return None
    for gradient in gradients:
        gradient /= scale
    mine = (*shards, *replicated) if dist.get_rank() == 0 else shards
    square = sum((p.grad.square().sum() for p in mine if p.grad is not None), torch.zeros(()))
    dist.all_reduce(square)
    norm = square.sqrt().item()
    for gradient in gradients:
        gradient *= min(1.0, max_norm / (norm + 1e-6))
    return norm
