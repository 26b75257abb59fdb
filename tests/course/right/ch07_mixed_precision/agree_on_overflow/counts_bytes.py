import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    values = torch.cat([torch.zeros(1)] + [gradient.flatten() for gradient in gradients if gradient is not None])
    count = (values.abs() < torch.inf).logical_not().any().to(torch.uint8)
    dist.all_reduce(count)
    return bool(count)
