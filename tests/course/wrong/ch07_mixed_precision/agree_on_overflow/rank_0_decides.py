# expect: DTL-VALUE-ONE-DECIDES
# says: rank 0 alone decides for all

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    found = any(not gradient.isfinite().all() for gradient in gradients if gradient is not None)
    overflow = torch.tensor(float(found))
    dist.broadcast(overflow, src=0)
    return overflow.item() > 0
