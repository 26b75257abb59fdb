# expect: DTL-VALUE-MEAN-OF-MEANS
# says: every rank counts the same

import torch.distributed as dist


def mean_over_uneven(shard):
    mean = shard.mean()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()
