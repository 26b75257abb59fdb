# expect: DTL-VALUE-NO-GRADIENTS
# says: no gradient reaches shard

import torch.distributed as dist
import torch.nn.functional as F


def vocabulary_embedding(ids, shard, group=None):
    local = ids - dist.get_rank(group) * len(shard)
    foreign = (local < 0) | (local >= len(shard))
    rows = F.embedding(local.masked_fill(foreign, 0), shard.detach())
    rows[foreign] = 0.0
    dist.all_reduce(rows, group=group)
    return rows
