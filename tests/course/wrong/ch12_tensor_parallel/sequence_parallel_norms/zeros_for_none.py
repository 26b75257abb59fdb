# expect: DTL-VALUE-GRADIENT-MADE
# says: gave a parameter a .grad that had None

import torch
import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad, group=group)
