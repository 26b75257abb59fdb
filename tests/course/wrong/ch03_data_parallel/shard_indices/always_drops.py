# expect: DTL-VALUE-DROPPED
# says: 1 of 7 samples dropped; without drop_last the order is padded

import torch


def shard_indices(n, num_replicas, rank, *, shuffle=True, seed=0, epoch=0, drop_last=False):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    total = n // num_replicas * num_replicas
    return order[:total][rank::num_replicas]
