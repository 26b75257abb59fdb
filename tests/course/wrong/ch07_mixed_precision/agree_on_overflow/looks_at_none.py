# expect: DTL-RAISED
# says: a gradient may be None; those after it count

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    overflow = torch.tensor(float(any(not gradient.isfinite().all() for gradient in gradients)))
    dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
    return bool(overflow)
