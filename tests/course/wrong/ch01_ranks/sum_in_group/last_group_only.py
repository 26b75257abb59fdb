# expect: DTL-VALUE-ONE-GROUP
# says: only the ranks of the last group

import torch.distributed as dist


def sum_in_group(x, groups):
    for ranks in groups:
        group = dist.new_group(ranks)
    total = x.clone()
    if dist.get_rank() in ranks:
        dist.all_reduce(total, group=group)
    return total
