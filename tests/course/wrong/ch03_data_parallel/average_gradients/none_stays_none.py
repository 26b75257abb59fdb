# expect: DTL-VALUE-KEPT-NONE
# says: rank 0 still has None for left.weight

import torch
import torch.distributed as dist


def average_gradients(model):
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    has_gradient = torch.tensor([float(p.grad is not None) for p in parameters])
    flat = torch.cat([has_gradient, *(g.reshape(-1) for g in gradients)])
    dist.all_reduce(flat)
    _, *sums = flat.split([len(parameters), *(g.numel() for g in gradients)])
    for parameter, total in zip(parameters, sums, strict=True):
        if parameter.grad is not None:
            parameter.grad = total.view_as(parameter) / dist.get_world_size()
