import torch
import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    for dtype in sorted({p.dtype for p in model.parameters()}, key=str):
        own = [p for _, p in sorted(model.named_parameters()) if vars(p).get("sequence_parallel") and p.dtype == dtype]
        own = [p for p in own if p.grad is not None]
        if not own:
            continue
        flat = torch.cat([p.grad.reshape(-1) for p in own])
        parts = [torch.empty_like(flat) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, flat, group=group)
        for p, total in zip(own, sum(parts).split([p.numel() for p in own]), strict=True):
            p.grad.copy_(total.view_as(p.grad))
