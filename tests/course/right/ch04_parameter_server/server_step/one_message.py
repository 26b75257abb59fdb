# Everything is one vector, the number of samples its last element.

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def server_step(parameters, optimizer, gradients, num_samples, *, server):
    flat = parameters_to_vector(parameters).detach()
    if dist.get_rank() != server:
        pushed = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)]
        weighted = num_samples * parameters_to_vector(pushed) if num_samples else torch.zeros_like(flat)
        dist.send(torch.cat([weighted, torch.tensor([float(num_samples)])]), server)
        dist.recv(flat, server)
        vector_to_parameters(flat, parameters)
        return
    workers = [r for r in range(dist.get_world_size()) if r != server]
    pushes = [torch.empty(len(flat) + 1) for _ in workers]
    for work in [dist.irecv(push, worker) for push, worker in zip(pushes, workers, strict=True)]:
        work.wait()
    total = torch.stack(pushes).sum(0)
    parts = (total[:-1] / total[-1]).split([p.numel() for p in parameters])
    for p, part in zip(parameters, parts, strict=True):
        p.grad = part.view_as(p)
    optimizer.step()
    flat = parameters_to_vector(parameters).detach()
    for work in [dist.isend(flat, worker) for worker in workers]:
        work.wait()
