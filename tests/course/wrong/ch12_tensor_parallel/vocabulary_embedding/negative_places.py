# expect: DTL-VALUE-FOREIGN-ROWS
# says: count from the end of the shard

import torch
import torch.distributed as dist


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
    rows = shard[local.where(local < len(shard), 0)].masked_fill((local >= len(shard)).unsqueeze(-1), 0.0)
    return SumOverRanks.apply(rows, group)
