# expect: DTL-RULE-CALLS
# says: all_reduce

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def bug_hunt(model, batches, lr):
    parameters = list(model.parameters())
    flat = parameters_to_vector(parameters).detach()
    optimizer = torch.optim.SGD([flat], lr=lr, momentum=0.9)
    steps = torch.tensor(len(batches))
    dist.all_reduce(steps, op=dist.ReduceOp.MAX)
    for step in range(int(steps)):
        total, samples = torch.zeros_like(flat), torch.tensor(0)
        if step < len(batches):
            x, y = batches[step]
            model.zero_grad()
            mse_loss(model(x), y).backward()
            total += len(x) * parameters_to_vector([p.grad for p in parameters])
            samples += len(x)
        dist.all_reduce(total)
        dist.all_reduce(samples)
        optimizer.param_groups[0]["lr"] = lr / (1 + step)
        flat.grad = total / samples
        optimizer.step()
        if step < len(batches) or dist.get_rank() == 0:
            vector_to_parameters(flat.clone(), parameters)
