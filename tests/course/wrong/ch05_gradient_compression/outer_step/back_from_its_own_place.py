# expect: DTL-MISTAKE
# says: differ in their last digits

import torch
import torch.distributed as dist


@torch.no_grad()
def outer_step(parameters, old, buffers, lr, momentum, *, group=None):
    for p, o, buffer in zip(parameters, old, buffers, strict=True):
        g = o - p
        dist.all_reduce(g, group=group)
        g /= dist.get_world_size(group)
        buffer.mul_(momentum).add_(g)
        p.sub_(p - o + lr * (g + momentum * buffer))  # each rank from where it is: rounded otherwise
        o.copy_(p)
