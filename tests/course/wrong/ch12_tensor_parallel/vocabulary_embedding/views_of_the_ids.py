# expect: DTL-RAISED
# says: view size is not compatible

import torch
import torch.distributed as dist


class Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard, ids, group):
        ids = ids.view(-1)
        local = ids - dist.get_rank(group) * len(shard)
        own = (local >= 0) & (local < len(shard))
        rows = shard.new_zeros(len(ids), shard.shape[1])
        rows[own] = shard[local[own]]
        dist.all_reduce(rows, group=group)
        ctx.own, ctx.local, ctx.like = own, local, shard
        return rows

    @staticmethod
    def backward(ctx, gradient):
        mine = torch.zeros_like(ctx.like)
        mine.index_add_(0, ctx.local[ctx.own], gradient[ctx.own])
        return mine, None, None


def vocabulary_embedding(ids, shard, group=None):
    return Lookup.apply(shard, ids, group).reshape(*ids.shape, -1)
