# expect: DTL-VALUE-PARTIAL-GRADIENT
# says: a norm's or not, the mark counts

import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    for name, p in model.named_parameters():
        if "norm" in name and getattr(p, "sequence_parallel", False) and p.grad is not None:
            dist.all_reduce(p.grad, group=group)
