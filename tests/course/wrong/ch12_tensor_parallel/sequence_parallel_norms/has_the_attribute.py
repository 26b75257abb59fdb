# expect: DTL-VALUE-COMPLETE-SUMMED
# says: its value counts

import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    for p in model.parameters():
        if hasattr(p, "sequence_parallel") and p.grad is not None:
            dist.all_reduce(p.grad, group=group)
