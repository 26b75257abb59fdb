# expect: DTL-VALUE-FACTOR
# says: exactly 1/2 of the reference
import torch
import torch.distributed as dist


def mean_over_uneven(shard):
    total, count = shard.sum(), torch.tensor(float(len(shard)))
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    dist.all_reduce(count)
    return total / count
