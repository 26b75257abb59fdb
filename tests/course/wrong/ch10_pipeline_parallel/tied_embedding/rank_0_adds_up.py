# expect: DTL-RAISED
# says: each replica has a group of its own
import torch
import torch.distributed as dist


def tied_embedding(copies, group):
    if not copies:
        return
    total = sum((copy.grad for copy in copies if copy.grad is not None), torch.zeros_like(copies[0]))
    if group is not None:
        dist.reduce(total, dst=0, group=group)
        dist.broadcast(total, src=0, group=group)
    for copy in copies:
        copy.grad = total.clone()
