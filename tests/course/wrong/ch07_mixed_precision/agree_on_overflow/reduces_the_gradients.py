# expect: DTL-COLL-SHAPE
# says: all_reduce

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    there = [gradient.reshape(-1) for gradient in gradients if gradient is not None]
    flat = torch.cat([torch.zeros(1), *there])
    dist.all_reduce(flat)
    return not flat.isfinite().all().item()
