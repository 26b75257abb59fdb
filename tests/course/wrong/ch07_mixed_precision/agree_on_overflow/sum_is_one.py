# expect: DTL-VALUE-COUNTED
# says: exactly one rank overflowed

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    found = any(not gradient.isfinite().all() for gradient in gradients if gradient is not None)
    overflow = torch.tensor(float(found))
    dist.all_reduce(overflow)
    return overflow.item() == 1
