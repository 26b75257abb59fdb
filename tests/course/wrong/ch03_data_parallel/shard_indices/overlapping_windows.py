# expect: DTL-DIFFICULTY
# says: rank r takes the positions r, r + N, r + 2N, ... of the order

import math

import torch


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
    size = total // num_replicas
    return order[:total][rank : rank + size]
