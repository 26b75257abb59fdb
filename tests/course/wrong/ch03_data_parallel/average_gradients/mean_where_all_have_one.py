# expect: DTL-VALUE-KEPT-NONE
# says: rank 0 ends with None for left.weight

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    """Replace each gradient by its mean over the ranks, in place."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    has_gradient = torch.tensor([float(p.grad is not None) for p in parameters])
    flat = torch.cat([has_gradient, *(g.reshape(-1) for g in gradients)])
    dist.all_reduce(flat)
    num_users, *sums = flat.split([len(parameters), *(g.numel() for g in gradients)])
    for parameter, users, total in zip(parameters, num_users.tolist(), sums, strict=True):
        if users == dist.get_world_size():
            parameter.grad = total.view_as(parameter) / dist.get_world_size()
