# expect: DTL-VALUE-ONE-ELEMENT
# says: only the last element of each gradient decides

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    found = any(
        gradient.numel() and not gradient.flatten()[-1].isfinite() for gradient in gradients if gradient is not None
    )
    overflow = torch.tensor(float(found))
    dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
    return bool(overflow)
