# expect: DTL-VALUE-AVERAGED
# says: number of ranks in the group

import torch
import torch.distributed as dist


def tied_embedding(copies, group):
    if not copies:
        return
    total = sum((copy.grad for copy in copies if copy.grad is not None), torch.zeros_like(copies[0]))
    if group is not None:
        dist.all_reduce(total, group=group)
        total /= dist.get_world_size(group)
    for copy in copies:
        copy.grad = total.clone()
