# expect: DTL-VALUE-LENGTHS
# says: padded once only: with 1 sample, the order and one repeat of it are too few for 3 ranks

import torch


def shard_indices(n, num_replicas, rank, *, shuffle=True, seed=0, epoch=0, drop_last=False):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    surplus = n % num_replicas
    order = order[: n - surplus] if drop_last else order + order[: -n % num_replicas]
    return order[rank::num_replicas]
