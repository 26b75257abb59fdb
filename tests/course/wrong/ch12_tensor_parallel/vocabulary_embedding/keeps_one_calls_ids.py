# expect: DTL-DIFFICULTY
# says: keep nothing of a call

import torch
import torch.distributed as dist

KEPT = {}


class Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard, ids, group):
        ids = ids.reshape(-1)
        local = ids - dist.get_rank(group) * len(shard)
        own = (local >= 0) & (local < len(shard))
        rows = shard.new_zeros(len(ids), shard.shape[1])
        rows[own] = shard[local[own]]
        dist.all_reduce(rows, group=group)
        KEPT["own"], KEPT["local"], ctx.like = own, local, shard
        return rows

    @staticmethod
    def backward(ctx, gradient):
        mine = torch.zeros_like(ctx.like)
        mine.index_add_(0, KEPT["local"][KEPT["own"]], gradient[KEPT["own"]])
        return mine, None, None


def vocabulary_embedding(ids, shard, group=None):
    return Lookup.apply(shard, ids, group).reshape(*ids.shape, -1)
