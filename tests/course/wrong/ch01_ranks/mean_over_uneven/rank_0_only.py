# expect: DTL-VALUE-ONE-RANK
# says: only rank 0 has the right result
# rank: 1

import torch
import torch.distributed as dist


def mean_over_uneven(shard):
    sum_and_count = torch.stack([shard.sum(), torch.tensor(float(len(shard)))])
    dist.reduce(sum_and_count, dst=0)
    return sum_and_count[0] / sum_and_count[1]
