# expect: DTL-VALUE-LAST
# says: [tensor] * n holds one tensor n times
import torch
import torch.distributed as dist


def sum_in_group(x, groups):
    for ranks in groups:
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            own = group
    parts = [torch.empty_like(x)] * dist.get_world_size(own)
    dist.all_gather(parts, x, group=own)
    return sum(parts)
