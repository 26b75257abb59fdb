# expect: DTL-RULE-MESSAGES
# says: none are needed

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
    message = [order]
    dist.broadcast_object_list(message, src=0)
    return message[0][:total][rank::num_replicas]
