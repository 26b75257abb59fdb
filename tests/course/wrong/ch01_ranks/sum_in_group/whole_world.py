# expect: DTL-VALUE-WORLD
# says: the sum over all ranks of the job

import torch.distributed as dist


def sum_in_group(x, groups):
    for ranks in groups:
        dist.new_group(ranks)
    total = x.clone()
    dist.all_reduce(total)
    return total
