# expect: DTL-VALUE-ROW-0-UNTRAINED
# says: as with padding_idx=0

import torch
import torch.distributed as dist
import torch.nn.functional as F


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def vocabulary_embedding(ids, shard, group=None):
    local = ids - dist.get_rank(group) * len(shard)
    foreign = (local < 0) | (local >= len(shard))
    rows = F.embedding(local.masked_fill(foreign, 0), shard, padding_idx=0)
    return SumOverRanks.apply(rows.masked_fill(foreign.unsqueeze(-1), 0.0), group)
