# expect: DTL-VALUE-ORDER
# says: padded or cut first, and shuffled then

import math

import torch


def shard_indices(n, num_replicas, rank, *, shuffle=True, seed=0, epoch=0, drop_last=False):
    order = list(range(n))
    if drop_last:
        total = n // num_replicas * num_replicas
    else:
        total = math.ceil(n / num_replicas) * num_replicas
        order = order * math.ceil(total / n)
    order = order[:total]
    if shuffle:
        g = torch.Generator().manual_seed(seed + epoch)
        order = [order[i] for i in torch.randperm(total, generator=g)]
    return order[rank::num_replicas]
