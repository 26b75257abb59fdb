# expect: DTL-RAISED
# says: the server is the rank `server`, not always rank 0

import torch
import torch.distributed as dist


def server_step(parameters, optimizer, gradients, num_samples, *, server):
    if dist.get_rank():
        dist.send(torch.tensor(num_samples), 0)
        for p, g in zip(parameters, gradients, strict=True):
            dist.send(torch.zeros_like(p) if g is None else g, 0)
        for p in parameters:
            dist.recv(p.data, 0)
        return
    total = 0
    for p in parameters:
        p.grad = torch.zeros_like(p)
    for worker in range(1, dist.get_world_size()):
        count = torch.tensor(0)
        dist.recv(count, worker)
        total += int(count)
        for p in parameters:
            gradient = torch.empty_like(p)
            dist.recv(gradient, worker)
            p.grad += gradient.nan_to_num() * count
    for p in parameters:
        p.grad /= total
    optimizer.step()
    for worker in range(1, dist.get_world_size()):
        for p in parameters:
            dist.send(p.data, worker)
