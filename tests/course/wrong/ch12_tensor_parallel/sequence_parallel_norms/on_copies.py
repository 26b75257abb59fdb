# expect: DTL-VALUE-PARTIAL-GRADIENT
# says: nothing is added up

import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False) and p.grad is not None:
            total = p.grad.clone()
            dist.all_reduce(total, group=group)
