# expect: DTL-VALUE-PADDING
# says: each rank pads its own samples, with the first of them

import math

import torch


def shard_indices(n, num_replicas, rank, *, shuffle=True, seed=0, epoch=0, drop_last=False):
    order = list(range(n))
    if shuffle:
        g = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=g).tolist()

    if drop_last:
        return order[: n // num_replicas * num_replicas][rank::num_replicas]
    mine = order[rank::num_replicas]
    each = math.ceil(n / num_replicas)
    while len(mine) < each:
        mine.append(mine[0] if mine else order[0])
    return mine
