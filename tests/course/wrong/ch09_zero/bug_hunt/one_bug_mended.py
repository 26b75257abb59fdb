# expect: DTL-MISTAKE
# says: has the shard of rank 0 only

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def bug_hunt(model, batches, lr, max_norm):
    rank, n = dist.get_rank(), dist.get_world_size()
    parameters = list(model.parameters())
    size = sum(p.numel() for p in parameters)
    length = -(-size // n)
    flat, start = torch.zeros(n * length), 0
    for p in parameters:
        view = flat[start : start + p.numel()].view_as(p)
        p.data, start = view.copy_(p.detach()), start + p.numel()
    shard = flat[rank * length : (rank + 1) * length]
    optimizer = torch.optim.SGD([shard], lr=lr, momentum=0.9)
    for x, y in batches:
        model.zero_grad()
        mse_loss(model(x), y).backward()
        gradient = torch.zeros_like(flat)
        gradient[:size] = torch.cat([p.grad.flatten() for p in parameters])
        dist.all_reduce(gradient)
        gradient /= n
        shard.grad = gradient[rank * length : (rank + 1) * length]
        clip_grad_norm_([shard], max_norm)
        optimizer.step()
        dist.all_gather(list(flat.split(length)), shard.clone())
    state = torch.zeros_like(flat)
    own = optimizer.state[shard]["momentum_buffer"]
    state[rank * length : (rank + 1) * length] = own
    dist.broadcast(state, src=0)
    return state[:size]
