# expect: DTL-DIFFICULTY
# says: with shuffle the order is torch.randperm(n, generator=g), g seeded with seed + epoch

import math
import random


def shard_indices(n, num_replicas, rank, *, shuffle=True, seed=0, epoch=0, drop_last=False):
    order = list(range(n))
    if shuffle:
        random.Random(seed + epoch).shuffle(order)
    if drop_last:
        total = n // num_replicas * num_replicas
    else:
        total = math.ceil(n / num_replicas) * num_replicas
        order = order * math.ceil(total / n)
    return order[:total][rank::num_replicas]
