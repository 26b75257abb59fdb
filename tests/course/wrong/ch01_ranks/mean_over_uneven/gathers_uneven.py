# expect: DTL-COLL-SHAPE
# says: calls all_gather with shape (1,), rank 1 with shape (3,)

import torch
import torch.distributed as dist


def mean_over_uneven(shard):
    parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, shard)
    return torch.cat(parts).mean()
