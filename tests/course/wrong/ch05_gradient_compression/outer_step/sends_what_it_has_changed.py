# expect: DTL-COLL-SKIP
# says: a rank that has not changed a tensor takes part

import torch
import torch.distributed as dist


@torch.no_grad()
def outer_step(parameters, old, buffers, lr, momentum, *, group=None):
    for p, o, buffer in zip(parameters, old, buffers, strict=True):
        g = o - p
        if g.abs().max() > 0 or dist.get_world_size(group) == 1:
            dist.all_reduce(g, group=group)
            g /= dist.get_world_size(group)
        buffer.mul_(momentum).add_(g)
        o.sub_(lr * (g + momentum * buffer))
        p.copy_(o)
