# expect: DTL-DIFFICULTY
# says: a part may be empty, and the mean of no numbers is NaN

import torch
import torch.distributed as dist


def mean_over_uneven(shard):
    count = torch.tensor(float(len(shard)))
    weighted = shard.mean() * count  # the mean of an empty part
    dist.all_reduce(weighted)
    dist.all_reduce(count)
    return weighted / count
