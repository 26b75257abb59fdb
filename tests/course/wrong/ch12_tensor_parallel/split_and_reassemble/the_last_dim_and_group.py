# expect: DTL-VALUE-LAST-GROUP
# says: has the dim and the group of that one

import torch
import torch.distributed as dist


def split_and_reassemble(full, dim, group):
    n = dist.get_world_size(group)
    if full.shape[dim] % n:
        raise ValueError(f"{n} ranks do not divide {full.shape[dim]}")
    part = full.chunk(n, dim)[dist.get_rank(group)].clone()

    split_and_reassemble.dim, split_and_reassemble.group = dim, group

    def reassemble(part):
        parts = [torch.empty(part.shape, dtype=part.dtype) for _ in range(n)]
        group, dim = split_and_reassemble.group, split_and_reassemble.dim
        parts = [torch.empty(part.shape, dtype=part.dtype) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, dim)

    return part, reassemble
