import torch
import torch.distributed as dist


def tied_embedding(copies, group):
    zero = [torch.zeros_like(copy) for copy in copies[:1]]
    gradients = [*zero, *(copy.grad for copy in copies if copy.grad is not None)]
    if group is None and len(copies) < 2:
        return
    total = torch.stack(gradients).sum(0)
    if group is not None:
        dist.reduce(total, group_dst=0, group=group)
        dist.broadcast(total, group_src=0, group=group)
    for copy in copies:
        copy.grad = copy.grad if copy.grad is not None else torch.empty_like(copy)
        copy.grad.copy_(total)
