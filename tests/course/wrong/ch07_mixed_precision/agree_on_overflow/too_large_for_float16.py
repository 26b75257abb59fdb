# expect: DTL-VALUE-FALSE-ALARM
# says: too large for float16 only

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    found = any(not gradient.half().isfinite().all() for gradient in gradients if gradient is not None)
    overflow = torch.tensor(float(found))
    dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
    return bool(overflow)
