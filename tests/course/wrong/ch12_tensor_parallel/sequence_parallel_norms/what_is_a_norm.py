# expect: DTL-VALUE-COMPLETE-SUMMED
# says: what is a norm is added up, not what is marked

import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    for name, p in model.named_parameters():
        if "norm" in name and p.grad is not None:
            dist.all_reduce(p.grad, group=group)
