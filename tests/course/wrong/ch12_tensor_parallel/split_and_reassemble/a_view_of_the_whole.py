# expect: DTL-VALUE-VIEW
# says: the part on rank 0 is a view

import torch
import torch.distributed as dist


def split_and_reassemble(full, dim, group):
    n = dist.get_world_size(group)
    if full.shape[dim] % n:
        raise ValueError(f"{n} ranks do not divide {full.shape[dim]}")
    part = full.chunk(n, dim)[dist.get_rank(group)].contiguous()

    def reassemble(part):
        parts = [torch.empty(part.shape, dtype=part.dtype) for _ in range(n)]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, dim)

    return part, reassemble
