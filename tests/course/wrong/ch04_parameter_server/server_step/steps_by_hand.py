# expect: DTL-DIFFICULTY
# says: the optimizer is any of torch.optim

# Takes the learning rate from the optimizer, and makes the step of SGD by itself.

import torch
import torch.distributed as dist


def server_step(parameters, optimizer, gradients, num_samples, *, server):
    if dist.get_rank() != server:
        dist.send(torch.tensor(float(num_samples)), server)
        for p, g in zip(parameters, gradients, strict=True):
            dist.send(torch.zeros_like(p) if g is None or not num_samples else g, server)
        for p in parameters:
            dist.recv(p.data, server)
        return
    workers = [r for r in range(dist.get_world_size()) if r != server]
    counts, pushes = [], []
    for worker in workers:
        count = torch.zeros(())
        dist.recv(count, worker)
        counts.append(count)
        pushes.append([torch.zeros_like(p) for p in parameters])
        for g in pushes[-1]:
            dist.recv(g, worker)
    lr = optimizer.param_groups[0]["lr"]
    with torch.no_grad():
        for i, p in enumerate(parameters):
            p -= lr * sum(c * push[i] for c, push in zip(counts, pushes, strict=True)) / sum(counts)
    for worker in workers:
        for p in parameters:
            dist.send(p.data, worker)
