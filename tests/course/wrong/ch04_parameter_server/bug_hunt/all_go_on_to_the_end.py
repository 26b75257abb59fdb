# expect: DTL-DIFFICULTY
# says: a worker without a further batch is done

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def bug_hunt(model, batches, lr):
    parameters = list(model.parameters())
    flat = parameters_to_vector(parameters).detach()
    goes_on = torch.tensor(1)
    if dist.get_rank() != 0:
        step = 0
        while goes_on:
            samples, gradient = 0, torch.zeros_like(flat)
            if step < len(batches):
                x, y = batches[step]
                model.zero_grad()
                mse_loss(model(x), y).backward()
                samples, gradient = len(x), parameters_to_vector([p.grad for p in parameters])
            dist.send(torch.tensor([samples, max(0, len(batches) - step - 1)]), 0)
            dist.send(gradient, 0)
            dist.recv(flat, 0)
            dist.recv(goes_on, 0)
            vector_to_parameters(flat, parameters)
            step += 1
        return
    optimizer = torch.optim.SGD([flat], lr=lr, momentum=0.9)
    workers, updates = range(1, dist.get_world_size()), 0
    while goes_on:
        total, samples, left = torch.zeros_like(flat), 0, 0
        for worker in workers:
            header, gradient = torch.empty(2, dtype=torch.int64), torch.empty_like(flat)
            dist.recv(header, worker)
            dist.recv(gradient, worker)
            total += header[0] * gradient
            samples += int(header[0])
            left += int(header[1])
        optimizer.param_groups[0]["lr"] = lr / (1 + updates)
        flat.grad = total / samples
        optimizer.step()
        updates += 1
        goes_on = torch.tensor(int(left > 0))
        for worker in workers:
            dist.send(flat, worker)
            dist.send(goes_on, worker)
    vector_to_parameters(flat, parameters)
