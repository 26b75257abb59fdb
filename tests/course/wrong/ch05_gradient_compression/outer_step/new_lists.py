# expect: DTL-MISTAKE
# says: the tensors in `old` stay as they were

import torch
import torch.distributed as dist


@torch.no_grad()
def outer_step(parameters, old, buffers, lr, momentum, *, group=None):
    for i, p in enumerate(parameters):
        g = old[i] - p
        dist.all_reduce(g, group=group)
        g /= dist.get_world_size(group)
        buffers[i].mul_(momentum).add_(g)
        p.copy_(old[i] - lr * (g + momentum * buffers[i]))
        old[i] = p.clone()
