# expect: DTL-VALUE-TWICE
# says: once for each module

import torch
import torch.distributed as dist


@torch.no_grad()
def sequence_parallel_norms(model, group=None):
    for p in [p for mod in model.modules() for p in mod.parameters()]:
        if getattr(p, "sequence_parallel", False) and p.grad is not None:
            dist.all_reduce(p.grad, group=group)
