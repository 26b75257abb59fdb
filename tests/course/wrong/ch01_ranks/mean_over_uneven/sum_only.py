# expect: DTL-VALUE-COUNT
# says: it is not divided by how many they are
import torch.distributed as dist


def mean_over_uneven(shard):
    s = shard.sum()
    dist.all_reduce(s)
    return s
