# expect: DTL-MISTAKE
# says: the server makes a step with each worker's gradients by themselves

import torch
import torch.distributed as dist


def server_step(parameters, optimizer, gradients, num_samples, *, server):
    if dist.get_rank() != server:
        dist.send(torch.tensor(num_samples), server)
        for p, gradient in zip(parameters, gradients, strict=True):
            dist.send(torch.zeros_like(p) if gradient is None else gradient, server)
        for p in parameters:
            dist.recv(p.data, server)
        return
    workers = [rank for rank in range(dist.get_world_size()) if rank != server]
    for worker in workers:
        samples = torch.tensor(0)
        dist.recv(samples, worker)
        pushed = [torch.empty_like(p) for p in parameters]
        for gradient in pushed:
            dist.recv(gradient, worker)
        if samples:
            for p, gradient in zip(parameters, pushed, strict=True):
                p.grad = gradient
            optimizer.step()
    for worker in workers:
        for p in parameters:
            dist.send(p.detach(), worker)
