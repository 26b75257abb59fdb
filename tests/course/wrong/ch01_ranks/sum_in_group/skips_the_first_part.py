# expect: DTL-VALUE-TWICE
# says: that of the group's first rank is missing
import torch
import torch.distributed as dist


def sum_in_group(x, groups):
    for ranks in groups:
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            own, size = group, len(ranks)
    parts = [torch.empty_like(x) for _ in range(size)]
    dist.all_gather(parts, x, group=own)
    total = x.clone()
    for part in parts[1:]:
        total += part
    return total
