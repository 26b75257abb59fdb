# expect: DTL-RULE-NAME
# says: adds up the gradient over the ranks once more

import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.nn.functional import all_reduce


def vocabulary_embedding(ids, shard, group=None):
    local = ids - dist.get_rank(group) * len(shard)
    foreign = (local < 0) | (local >= len(shard))
    rows = F.embedding(local.masked_fill(foreign, 0), shard).masked_fill(foreign.unsqueeze(-1), 0.0)
    return all_reduce(rows, group=group or dist.group.WORLD)
