# expect: DTL-MISTAKE
# says: or a copy of it, is still in memory

import torch
import torch.distributed as dist


def split_and_reassemble(full, dim, group):
    n = dist.get_world_size(group)
    if full.shape[dim] % n:
        raise ValueError(f"{n} ranks do not divide {full.shape[dim]}")
    chunks = [c.clone() for c in full.chunk(n, dim)]
    part = chunks[dist.get_rank(group)]

    def reassemble(part):
        parts = [torch.empty_like(c).contiguous() for c in chunks]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, dim)

    return part, reassemble
