# expect: DTL-VALUE-ONE-GRADIENT
# says: only the last gradient of a rank decides

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    overflow = torch.zeros(())
    for gradient in gradients:
        if gradient is not None:
            overflow = (~gradient.isfinite().all()).float()
    dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
    return overflow.item() > 0
