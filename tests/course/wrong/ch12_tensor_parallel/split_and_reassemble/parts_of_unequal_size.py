# expect: DTL-MISTAKE
# says: expected a ValueError, but nothing was raised

import torch
import torch.distributed as dist


def split_and_reassemble(full, dim, group):
    n, dtype = dist.get_world_size(group), full.dtype
    shapes = [part.shape for part in full.tensor_split(n, dim)]
    part = full.tensor_split(n, dim)[dist.get_rank(group)].clone()

    def reassemble(part):
        parts = [torch.empty(shape, dtype=dtype) for shape in shapes]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, dim)

    return part, reassemble
