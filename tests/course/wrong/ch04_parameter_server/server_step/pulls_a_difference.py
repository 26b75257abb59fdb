# expect: DTL-DIFFICULTY
# says: a pull replaces what a worker has

# The server sends by how much its parameters changed, and the workers add that to theirs.

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def server_step(parameters, optimizer, gradients, num_samples, *, server):
    before = parameters_to_vector(parameters).detach().clone()
    if dist.get_rank() != server:
        pushed = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)]
        flat = parameters_to_vector(pushed) if num_samples else torch.zeros_like(before)
        dist.send(torch.cat([flat * num_samples, torch.tensor([float(num_samples)])]), server)
        change = torch.empty_like(before)
        dist.recv(change, server)
        vector_to_parameters(before + change, parameters)
        return
    workers = [r for r in range(dist.get_world_size()) if r != server]
    total = torch.zeros(len(before) + 1)
    for worker in workers:
        push = torch.empty_like(total)
        dist.recv(push, worker)
        total += push
    mean, at = total[:-1] / total[-1], 0
    for p in parameters:
        p.grad = mean[at : at + p.numel()].view_as(p)
        at += p.numel()
    optimizer.step()
    for worker in workers:
        dist.send(parameters_to_vector(parameters).detach() - before, worker)
