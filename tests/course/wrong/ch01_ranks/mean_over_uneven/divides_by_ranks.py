# expect: DTL-VALUE-COUNT
# says: divided by the number of ranks

import torch.distributed as dist


def mean_over_uneven(shard):
    total = shard.sum()
    dist.all_reduce(total)
    return total / dist.get_world_size()
