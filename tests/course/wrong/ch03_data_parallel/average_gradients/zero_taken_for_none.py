# expect: DTL-VALUE-KEPT-NONE
# says: None for right.weight
# says: a gradient of zero stays

import torch
import torch.distributed as dist


def average_gradients(model):
    for p in model.parameters():
        if not p.requires_grad:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
        if not p.grad.any():
            p.grad = None
