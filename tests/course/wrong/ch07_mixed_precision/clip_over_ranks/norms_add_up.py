# expect: DTL-VALUE-SUM-OF-NORMS
# says: the norms of the ranks are added up


import torch
import torch.distributed as dist


def clip_over_ranks(shards, replicated, scale, max_norm):
    gradients = [p.grad for p in (*shards, *replicated) if p.grad is not None]
    for gradient in gradients:
        gradient /= scale
    mine = (*shards, *replicated) if dist.get_rank() == 0 else shards
    norm = sum((p.grad.square().sum() for p in mine if p.grad is not None), torch.zeros(())).sqrt()
    dist.all_reduce(norm)
    if not norm.isfinite():
        return None
    for gradient in gradients:
        gradient *= min(1.0, max_norm / norm.item())
    return norm.item()
