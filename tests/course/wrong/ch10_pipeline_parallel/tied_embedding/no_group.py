# expect: DTL-COLL-SKIP
# says: ranks without a copy take no part: a call of the ranks with one needs group=group
import torch
import torch.distributed as dist


def tied_embedding(copies, group):
    if not copies:
        return
    total = sum((copy.grad for copy in copies if copy.grad is not None), torch.zeros_like(copies[0]))
    if group is not None:
        dist.all_reduce(total)
    for copy in copies:
        copy.grad = total.clone()
