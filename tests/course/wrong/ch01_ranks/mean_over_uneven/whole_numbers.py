# expect: DTL-VALUE-WHOLE
# says: lost what is behind the point
import torch
import torch.distributed as dist


def mean_over_uneven(shard):
    pair = torch.tensor([int(shard.sum()), len(shard)])
    dist.all_reduce(pair)
    return pair[0] / pair[1]
