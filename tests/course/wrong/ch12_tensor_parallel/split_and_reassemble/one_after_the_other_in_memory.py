# expect: DTL-VALUE-OTHER-DIM
# says: one after the other in memory

import torch
import torch.distributed as dist


def split_and_reassemble(full, dim, group):
    n = dist.get_world_size(group)
    if full.shape[dim] % n:
        raise ValueError(f"{n} ranks do not divide {full.shape[dim]}")
    part = full.chunk(n, dim)[dist.get_rank(group)].clone()
    shape = full.shape

    def reassemble(part):
        whole = torch.empty(n * part.numel(), dtype=part.dtype)
        dist.all_gather_into_tensor(whole, part.contiguous().flatten(), group=group)
        return whole.reshape(shape)

    return part, reassemble
