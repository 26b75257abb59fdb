# expect: DTL-VALUE-KEPT-NONE
# says: it was averaged on no rank, and rank 1 still has its own gradient

import torch
import torch.distributed as dist


def average_gradients(model):
    params = list(model.parameters())
    has = torch.tensor([float(p.grad is not None) for p in params])
    dist.broadcast(has, src=0)
    for p, h in zip(params, has, strict=True):
        if h:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
