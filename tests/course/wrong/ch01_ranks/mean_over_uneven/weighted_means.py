# expect: DTL-VALUE-NAN
# says: the result is NaN (on every rank)

import torch
import torch.distributed as dist


def mean_over_uneven(shard):
    count = torch.tensor(float(len(shard)))
    weighted = shard.mean() * count  # the mean of an empty part
    dist.all_reduce(weighted)
    dist.all_reduce(count)
    return weighted / count
