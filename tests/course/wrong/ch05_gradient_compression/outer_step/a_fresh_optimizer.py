# expect: DTL-MISTAKE
# says: neither the momentum of the rounds before counts

import torch
import torch.distributed as dist


def outer_step(parameters, old, buffers, lr, momentum, *, group=None):
    mean = torch.cat([(o - p.data).view(-1) for p, o in zip(parameters, old, strict=True)])
    dist.all_reduce(mean, group=group)
    mean /= dist.get_world_size(group)
    leaves = [torch.nn.Parameter(o) for o in old]
    for leaf, g in zip(leaves, mean.split([o.numel() for o in old]), strict=True):
        leaf.grad = g.view_as(leaf)
    torch.optim.SGD(leaves, lr, momentum, nesterov=momentum > 0).step()
    for p, o in zip(parameters, old, strict=True):
        p.data.copy_(o)
