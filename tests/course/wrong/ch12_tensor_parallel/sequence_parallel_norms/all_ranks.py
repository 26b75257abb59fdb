# expect: DTL-VALUE-GROUP-IGNORED
# says: other groups have other models

import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False) and p.grad is not None:
            dist.all_reduce(p.grad, group=None)
