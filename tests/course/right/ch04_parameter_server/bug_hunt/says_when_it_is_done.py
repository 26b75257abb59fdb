import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def bug_hunt(model, batches, lr):
    """Workers pull first, and say at the end that they are done."""
    parameters = [p.data for p in model.parameters()]
    if dist.get_rank() > 0:
        for x, y in batches:
            model.zero_grad()
            mse_loss(model(x), y).backward()
            dist.send(torch.tensor(len(x)), 0)
            for p in model.parameters():
                dist.send(p.grad, 0)
            for p in parameters:
                dist.recv(p, 0)
        dist.send(torch.tensor(0), 0)
        return
    momentum = [torch.zeros_like(p) for p in parameters]
    working, step = list(range(1, dist.get_world_size())), 0
    while working:
        sums, samples, pushed = [torch.zeros_like(p) for p in parameters], 0, []
        for worker in working:
            count = torch.tensor(0)
            dist.recv(count, worker)
            if count == 0:
                continue
            for total in sums:
                gradient = torch.empty_like(total)
                dist.recv(gradient, worker)
                total += count * gradient
            samples += int(count)
            pushed.append(worker)
        working = pushed
        if not pushed:
            break
        for p, buffer, total in zip(parameters, momentum, sums, strict=True):
            buffer.mul_(0.9).add_(total / samples)
            p -= lr / (1 + step) * buffer
        step += 1
        for worker in pushed:
            for p in parameters:
                dist.send(p, worker)
