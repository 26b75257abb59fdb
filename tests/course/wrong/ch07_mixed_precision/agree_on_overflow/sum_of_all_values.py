# expect: DTL-VALUE-FALSE-ALARM
# says: in which every value is finite

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    total = torch.zeros(())
    for gradient in gradients:
        if gradient is not None:
            total += gradient.sum()
    overflow = (~total.isfinite()).float()
    dist.all_reduce(overflow)
    return bool(overflow > 0)
