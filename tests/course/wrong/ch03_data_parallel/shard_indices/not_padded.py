# expect: DTL-VALUE-LENGTHS
# says: neither padded nor cut: ranks 0 to 1 have 4, 3 samples

import torch


def shard_indices(n, num_replicas, rank, *, shuffle=True, seed=0, epoch=0, drop_last=False):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    return order[rank::num_replicas]
