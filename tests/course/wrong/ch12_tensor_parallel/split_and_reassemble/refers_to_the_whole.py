# expect: DTL-RULE-WHOLE-HELD
# says: reassemble refers to it

import torch
import torch.distributed as dist


def split_and_reassemble(full, dim, group):
    n = dist.get_world_size(group)
    if full.shape[dim] % n:
        raise ValueError(f"{n} ranks do not divide {full.shape[dim]}")
    part = full.chunk(n, dim)[dist.get_rank(group)].clone()

    def reassemble(part):
        whole = torch.zeros(full.shape, dtype=full.dtype)
        parts = [torch.empty(part.shape, dtype=part.dtype) for _ in range(n)]
        dist.all_gather(parts, part.contiguous(), group=group)
        for place, chunk in zip(whole.chunk(n, dim), parts, strict=True):
            place.copy_(chunk)
        return whole

    return part, reassemble
