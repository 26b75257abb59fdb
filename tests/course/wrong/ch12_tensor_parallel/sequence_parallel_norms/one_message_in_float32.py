# expect: DTL-VALUE-DIGITS
# says: as if rounded to float32 on the way

import torch
import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    marked = [p for p in model.parameters() if getattr(p, "sequence_parallel", False) and p.grad is not None]
    if not marked:
        return
    flat = torch.cat([p.grad.flatten().float() for p in marked])
    dist.all_reduce(flat, group=group)
    for p, total in zip(marked, flat.split([p.numel() for p in marked]), strict=True):
        p.grad.copy_(total.view_as(p))
