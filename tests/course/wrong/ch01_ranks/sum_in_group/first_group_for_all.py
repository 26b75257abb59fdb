# expect: DTL-VALUE-ONE-GROUP
# says: every rank has the sum of the first group
import torch
import torch.distributed as dist


def sum_in_group(x, groups):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    for ranks in groups:
        return torch.stack([parts[r] for r in ranks]).sum(0)
