# expect: DTL-RULE-CALLS
# says: calls all_reduce

import torch
import torch.distributed as dist


def server_step(parameters, optimizer, gradients, num_samples, *, server):
    total = torch.tensor(float(num_samples))
    dist.all_reduce(total)
    for i, p in enumerate(parameters):
        own = gradients[i] if gradients and num_samples and gradients[i] is not None else torch.zeros_like(p)
        s = own * num_samples
        dist.all_reduce(s)
        p.grad = s / total
    if optimizer:
        optimizer.step()
    for p in parameters:
        dist.broadcast(p.data, server)
