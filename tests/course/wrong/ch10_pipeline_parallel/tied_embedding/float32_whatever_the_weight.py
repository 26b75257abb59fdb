# expect: DTL-RAISED
# says: a gradient has the type of its weight
import torch
import torch.distributed as dist


def tied_embedding(copies, group):
    if not copies:
        return
    total = torch.zeros(copies[0].shape)
    for copy in copies:
        if copy.grad is not None:
            total += copy.grad
    if group is not None:
        dist.all_reduce(total, group=group)
    for copy in copies:
        copy.grad = total.clone()
