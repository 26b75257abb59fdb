# expect: DTL-COLL-SKIP
# says: every rank asks the others, also one that has an overflow itself

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    for gradient in gradients:
        if gradient is not None and not gradient.isfinite().all():
            return True
    overflow = torch.zeros(())
    dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
    return overflow.item() > 0
