# expect: DTL-VALUE-LOCAL-COUNT
# says: the length of its own part

import torch.distributed as dist


def mean_over_uneven(shard):
    total = shard.sum()
    dist.all_reduce(total)
    return total / len(shard)
