# expect: DTL-VALUE-CUT
# says: cut to the length of the shortest

import torch
import torch.distributed as dist


def mean_over_uneven(shard):
    shortest = torch.tensor(len(shard))
    dist.all_reduce(shortest, op=dist.ReduceOp.MIN)
    mean = shard[: int(shortest)].mean()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()
