# expect: DTL-VALUE-DEALT-OUT
# says: dealt out in turn

import torch
import torch.distributed as dist


def split_and_reassemble(full, dim, group):
    n = dist.get_world_size(group)
    if full.shape[dim] % n:
        raise ValueError(f"{n} ranks do not divide {full.shape[dim]}")
    part = full.movedim(dim, 0)[dist.get_rank(group) :: n].movedim(0, dim).clone()

    def reassemble(part):
        parts = [torch.empty(part.shape, dtype=part.dtype) for _ in range(n)]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.stack(parts, dim % part.dim() + 1).flatten(dim % part.dim(), dim % part.dim() + 1)

    return part, reassemble
