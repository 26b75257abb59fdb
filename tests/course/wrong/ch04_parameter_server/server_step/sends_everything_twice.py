# expect: DTL-RULE-BYTES
# says: in each step (1) the parameters to each worker once

# Each message goes out a second time, for safety.

import torch
import torch.distributed as dist


def send(tensor, to):
    for _ in range(2):
        dist.send(tensor, to)


def receive(like, sender):
    arrived = torch.empty_like(like)
    for _ in range(2):
        dist.recv(arrived, sender)
    return arrived


def server_step(parameters, optimizer, gradients, num_samples, *, server):
    if dist.get_rank() != server:
        send(torch.tensor(float(num_samples)), server)
        for p, gradient in zip(parameters, gradients, strict=True):
            send(torch.zeros_like(p) if gradient is None else gradient, server)
        for p in parameters:
            p.data.copy_(receive(p.detach(), server))
        return
    workers = [rank for rank in range(dist.get_world_size()) if rank != server]
    pushes = []
    for worker in workers:
        samples = receive(torch.tensor(0.0), worker)
        pushed = [receive(p.detach(), worker) for p in parameters]
        if samples:
            pushes.append((samples, pushed))
    for i, p in enumerate(parameters):
        p.grad = sum(n * pushed[i] for n, pushed in pushes) / sum(n for n, _ in pushes)
    optimizer.step()
    for worker in workers:
        for p in parameters:
            send(p.detach(), worker)
