# The mean moves with each push; the server zeroes the gradients that it has.

import torch
import torch.distributed as dist


def server_step(parameters, optimizer, gradients, num_samples, *, server):
    workers = sorted({*range(dist.get_world_size())} - {server})
    if optimizer is None:
        dist.send(torch.tensor([num_samples], dtype=torch.int32), server)
        for gradient, p in zip(gradients, parameters, strict=True):
            dist.send(gradient if gradient is not None else torch.zeros(p.shape), server)
        with torch.no_grad():
            for p in parameters:
                new = torch.empty(p.shape)
                dist.recv(new, server)
                p.copy_(new)
        return
    optimizer.zero_grad()
    for p in parameters:
        p.grad = torch.zeros(p.shape)
    seen = 0
    for worker in workers:
        number = torch.zeros(1, dtype=torch.int32)
        dist.recv(number, src=worker)
        seen += number.item()
        for p in parameters:
            push = torch.zeros(p.shape)
            dist.recv(push, src=worker)
            if number.item():
                p.grad.lerp_(push, number.item() / seen)
    optimizer.step()
    with torch.no_grad():
        for worker in workers:
            for p in parameters:
                dist.send(p.clone(), dst=worker)
