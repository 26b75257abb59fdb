# expect: DTL-VALUE-FOREIGN-ROWS
# says: id % rows of the own shard and added

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
    return SumOverRanks.apply(F.embedding(ids % len(shard), shard), group)
