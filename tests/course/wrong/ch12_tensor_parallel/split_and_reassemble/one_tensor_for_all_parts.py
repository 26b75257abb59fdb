# expect: DTL-VALUE-ONE-BUFFER
# says: has one tensor several times

import torch
import torch.distributed as dist


def split_and_reassemble(full, dim, group):
    n = dist.get_world_size(group)
    if full.shape[dim] % n:
        raise ValueError(f"{n} ranks do not divide {full.shape[dim]}")
    part = full.chunk(n, dim)[dist.get_rank(group)].clone()

    def reassemble(part):
        parts = [torch.empty(part.shape, dtype=part.dtype)] * n
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, dim)

    return part, reassemble
