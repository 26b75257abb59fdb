# expect: DTL-VALUE-TWICE
# says: own x counts twice
import torch.distributed as dist


def sum_in_group(x, groups):
    for ranks in groups:
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            own = group
    total = x.clone()
    dist.all_reduce(total, group=own)
    return total + x
