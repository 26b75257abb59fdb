# expect: DTL-VALUE-STALE
# says: the mean is in no parameter's `.grad`

import torch
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
