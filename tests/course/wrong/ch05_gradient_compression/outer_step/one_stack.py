# expect: DTL-RAISED
# says: each tensor is stepped, with its own buffer

import torch
import torch.distributed as dist


@torch.no_grad()
def outer_step(parameters, old, buffers, lr, momentum, *, group=None):
    starts, state = torch.stack(list(old)), torch.stack(list(buffers))
    g = starts - torch.stack(list(parameters))
    dist.all_reduce(g, group=group)
    g /= dist.get_world_size(group)
    state = momentum * state + g
    new = starts - lr * (g + momentum * state)
    for i, p in enumerate(parameters):
        p.copy_(new[i])
        old[i].copy_(new[i])
        buffers[i].copy_(state[i])
