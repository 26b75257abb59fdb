# expect: DTL-MISTAKE
# says: of the group's first rank

import torch
import torch.distributed as dist


@torch.no_grad()
def outer_step(parameters, old, buffers, lr, momentum, *, group=None):
    """The first rank of the group steps by its own pseudo-gradient, and sends its parameters."""
    first = dist.get_global_rank(group, 0) if group else 0
    for p, o, buffer in zip(parameters, old, buffers, strict=True):
        g = o - p
        dist.broadcast(g, first, group=group)
        buffer.mul_(momentum).add_(g)
        o.sub_(lr * (g + momentum * buffer))
        p.copy_(o)
