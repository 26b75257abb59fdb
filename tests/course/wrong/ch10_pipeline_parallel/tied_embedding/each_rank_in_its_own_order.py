# expect: DTL-MISTAKE
# says: not the same to the last bit


import torch
import torch.distributed as dist


def tied_embedding(copies, group):
    if not copies:
        return
    total = sum((copy.grad for copy in copies if copy.grad is not None), torch.zeros_like(copies[0]))
    if group is not None:
        parts = [torch.empty_like(total) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, total, group=group)
        own = parts.pop(dist.get_rank(group))
        total = sum(parts, own)  # its own first
    for copy in copies:
        copy.grad = total.clone()
