# expect: DTL-COLL-SKIP
# says: all_reduce

import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    if dist.get_rank(group) == 0:
        for p in model.parameters():
            if getattr(p, "sequence_parallel", False) and p.grad is not None:
                dist.all_reduce(p.grad, group=group)
