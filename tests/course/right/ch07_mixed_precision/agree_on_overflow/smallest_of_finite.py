import math

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    finite = all(math.isfinite(value) for g in gradients if g is not None for value in g.flatten().tolist())
    flag = torch.tensor([1.0 if finite else 0.0])
    everyone = [torch.empty(1) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, flag)
    return min(one.item() for one in everyone) < 1
