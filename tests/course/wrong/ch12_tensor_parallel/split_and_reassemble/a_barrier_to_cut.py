# expect: DTL-RULE-CALLS
# says: to cut the weight

import torch
import torch.distributed as dist


def split_and_reassemble(full, dim, group):
    n, place = dist.get_world_size(group), dist.get_rank(group)
    size = full.shape[dim]
    if size % n:
        raise ValueError(f"{n} ranks do not divide {size}")
    dist.barrier(group)
    part = full.chunk(n, dim)[place].clone()

    def reassemble(part):
        part = part.contiguous()
        parts = [torch.empty_like(part) for _ in range(n)]
        dist.all_gather(parts, part, group=group)
        return torch.cat(parts, dim)

    return part, reassemble
