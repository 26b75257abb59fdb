# expect: DTL-VALUE-PARAMETERS
# says: changed the parameter first.weight itself

import torch
import torch.distributed as dist


def average_gradients(model):
    size = dist.get_world_size()
    for p in model.parameters():
        grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(grad)
        if grad.any():
            p.grad = grad / dist.get_world_size()
        p.data -= 0.1 * grad / size
