# expect: DTL-MISTAKE
# says: NaN is not noticed

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    overflow = torch.zeros(1)
    for gradient in gradients:
        if gradient is not None and (gradient.abs() == torch.inf).any():
            overflow += 1
    dist.all_reduce(overflow)
    return bool(overflow)
