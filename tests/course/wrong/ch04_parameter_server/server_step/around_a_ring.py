# expect: DTL-RULE-ROUTE
# says: workers talk to the server only

# The sums go from worker to worker, and the new parameters the same way: right values, and nobody's link is hot.

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def server_step(parameters, optimizer, gradients, num_samples, *, server):
    rank, n = dist.get_rank(), dist.get_world_size()
    before, after = (rank - 1) % n, (rank + 1) % n
    flat = parameters_to_vector(parameters).detach()
    total = torch.zeros(len(flat) + 1)
    if rank != server:
        pushed = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)]
        if num_samples:
            total[:-1], total[-1] = num_samples * parameters_to_vector(pushed), num_samples
    arrived = torch.empty_like(total)
    if rank == server:
        dist.recv(arrived, before)
        mean, at = arrived[:-1] / arrived[-1], 0
        for p in parameters:
            p.grad = mean[at : at + p.numel()].view_as(p)
            at += p.numel()
        optimizer.step()
        dist.send(parameters_to_vector(parameters).detach(), after)
        return
    if before != server:
        dist.recv(arrived, before)
        total += arrived
    dist.send(total, after)
    dist.recv(flat, before)
    vector_to_parameters(flat, parameters)
    if after != server:
        dist.send(flat, after)
