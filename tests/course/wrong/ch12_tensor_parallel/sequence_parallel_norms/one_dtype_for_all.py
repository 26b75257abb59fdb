# expect: DTL-RAISED
# says: gradients of one model may have two dtypes

import torch
import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    marked = [p for p in model.parameters() if getattr(p, "sequence_parallel", False) and p.grad is not None]
    if marked:
        flat = torch.cat([p.grad.flatten() for p in marked])
        dist.all_reduce(flat, group=group)
        for p, total in zip(marked, flat.split([p.numel() for p in marked]), strict=True):
            p.grad = total.view_as(p)
