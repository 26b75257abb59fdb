# expect: DTL-VALUE-PADDED
# says: and what fills it was counted too
import torch
import torch.distributed as dist


def mean_over_uneven(shard):
    longest = torch.tensor(len(shard))
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    padded = torch.zeros(int(longest))
    padded[: len(shard)] = shard
    mean = padded.mean()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()
