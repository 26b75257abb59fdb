import torch
import torch.distributed as dist


def clip_over_ranks(shards, replicated, scale, max_norm):
    own, copies = ([p.grad.flatten() for p in group if p.grad is not None] for group in (shards, replicated))
    bad = torch.tensor(float(not all(g.isfinite().all() for g in (*own, *copies))))
    dist.all_reduce(bad, op=dist.ReduceOp.MAX)
    if bad:
        return None
    square = torch.cat([torch.zeros(1), *own]).div(scale).square().sum()
    dist.all_reduce(square)
    norm = (square + torch.cat([torch.zeros(1), *copies]).div(scale).square().sum()).sqrt().item()
    for parameter in (*shards, *replicated):
        if parameter.grad is not None:
            parameter.grad.mul_(min(1.0, max_norm / (norm + 1e-6)) / scale)
    return norm
