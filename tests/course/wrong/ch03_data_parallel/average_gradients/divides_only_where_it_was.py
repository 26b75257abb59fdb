# expect: DTL-VALUE-FACTOR
# says: rank 0, which had None for left.weight, has the sum there

import torch
import torch.distributed as dist


def average_gradients(model):
    params = [p for p in model.parameters() if p.requires_grad]
    has = torch.tensor([float(p.grad is not None) for p in params])
    dist.all_reduce(has)
    for p, h in zip(params, has, strict=False):
        if h == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad)
        else:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
