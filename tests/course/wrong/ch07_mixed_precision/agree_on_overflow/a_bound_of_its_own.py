# expect: DTL-VALUE-FALSE-ALARM
# says: a large value is taken for an overflow, and what a float32 can hold

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    found = any(not (gradient.abs() < 3.1e38).all() for gradient in gradients if gradient is not None)
    overflow = torch.tensor(float(found))
    dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
    return bool(overflow)
