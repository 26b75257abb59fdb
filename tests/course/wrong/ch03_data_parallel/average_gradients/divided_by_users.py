# expect: DTL-VALUE-USERS
# says: left.weight is averaged over the 2 ranks that used it

import torch
import torch.distributed as dist


def average_gradients(model):
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    has_gradient = torch.tensor([float(p.grad is not None) for p in parameters])
    flat = torch.cat([has_gradient, *(g.reshape(-1) for g in gradients)])
    dist.all_reduce(flat)
    num_users, *sums = flat.split([len(parameters), *(g.numel() for g in gradients)])
    for parameter, users, total in zip(parameters, num_users.tolist(), sums, strict=True):
        if users:
            parameter.grad = total.view_as(parameter) / users
