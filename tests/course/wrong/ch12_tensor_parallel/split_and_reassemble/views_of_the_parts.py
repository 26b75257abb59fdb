# expect: DTL-RAISED
# says: view size is not compatible

import torch
import torch.distributed as dist


def split_and_reassemble(full, dim, group):
    n, place = dist.get_world_size(group), dist.get_rank(group)
    size = full.shape[dim]
    if size % n:
        raise ValueError(f"{n} ranks do not divide {size}")
    part = full.chunk(n, dim)[place].clone()

    def reassemble(part):
        whole = torch.empty(n * part.numel(), dtype=part.dtype)
        dist.all_gather_into_tensor(whole, part.view(-1), group=group)
        return torch.cat([one.view(part.shape) for one in whole.chunk(n)], dim)

    return part, reassemble
