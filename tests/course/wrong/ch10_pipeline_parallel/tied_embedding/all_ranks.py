# expect: DTL-COLL-SKIP
# says: group is None on rank 1, and dist.all_reduce takes that for all ranks

import torch
import torch.distributed as dist


def tied_embedding(copies, group):
    if not copies:
        return
    total = sum((copy.grad for copy in copies if copy.grad is not None), torch.zeros_like(copies[0]))
    dist.all_reduce(total, group=group)
    for copy in copies:
        copy.grad = total.clone()
