# expect: DTL-RAISED
# says: a gradient may have no elements

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    found = any(not gradient.abs().max().isfinite() for gradient in gradients if gradient is not None)
    overflow = torch.tensor(float(found))
    dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
    return bool(overflow)
