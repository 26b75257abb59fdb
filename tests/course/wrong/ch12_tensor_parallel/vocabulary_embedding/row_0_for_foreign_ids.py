# expect: DTL-VALUE-FOREIGN-ROWS
# says: looked up as row 0 of the own shard and added to the sum

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
    return SumOverRanks.apply(F.embedding(local.masked_fill(foreign, 0), shard), group)
