# expect: DTL-VALUE-LOCAL-SHUFFLE
# says: dealt out first and shuffled then

import math

import torch


def shard_indices(n, num_replicas, rank, *, shuffle=True, seed=0, epoch=0, drop_last=False):
    order = list(range(n))
    if drop_last:
        total = n // num_replicas * num_replicas
    else:
        total = math.ceil(n / num_replicas) * num_replicas
        order = order * math.ceil(total / n)
    share = order[:total][rank::num_replicas]
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        share = [share[k] for k in torch.randperm(len(share), generator=generator).tolist()]
    return share
