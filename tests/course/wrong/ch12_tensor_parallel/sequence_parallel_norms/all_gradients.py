# expect: DTL-VALUE-COMPLETE-SUMMED
# says: all gradients are added up

import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, group=group)
