# expect: DTL-VALUE-SHARED-GRADIENT
# says: what is added to one

import torch
import torch.distributed as dist


def tied_embedding(copies, group):
    if not copies:
        return
    total = sum((copy.grad for copy in copies if copy.grad is not None), torch.zeros_like(copies[0]))
    if group is not None:
        dist.all_reduce(total, group=group)
    for copy in copies:
        copy.grad = total
