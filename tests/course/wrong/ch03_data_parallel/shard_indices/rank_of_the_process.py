# expect: DTL-VALUE-RANK
# says: the rank is that of this process, dist.get_rank()

import math

import torch
import torch.distributed as dist


def shard_indices(n, num_replicas, rank, *, shuffle=True, seed=0, epoch=0, drop_last=False):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    if drop_last:
        total = n // num_replicas * num_replicas
    else:
        total = math.ceil(n / num_replicas) * num_replicas
        order = order * math.ceil(total / n)
    return order[:total][dist.get_rank() :: num_replicas]
