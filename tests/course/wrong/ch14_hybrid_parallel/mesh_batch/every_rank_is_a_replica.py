# expect: DTL-DIFFICULTY
# says: the ranks of a tp group see the same rows, which count once

import torch.distributed as dist
from torch.nn.functional import cross_entropy


def mesh_batch(model, load, num_rows, groups):
    """As under DDP alone."""
    n, rank = dist.get_world_size(), dist.get_rank()
    x, y = load([num_rows // n * rank + k for k in range(num_rows // n)])
    count = (y != -100).sum()
    dist.all_reduce(count)
    loss = cross_entropy(model(x).transpose(1, 2), y, reduction="sum")
    return loss * n / max(count.item(), 1)
