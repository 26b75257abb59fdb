# expect: DTL-VALUE-OLD-VALUES
# says: after a change of the shards
import torch
import torch.distributed as dist

WEIGHTS = {}


class Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard, ids, group):
        key = group, shard.data_ptr()
        if key not in WEIGHTS:
            t, rows = dist.get_world_size(group), len(shard)
            halves = [torch.empty(t, half, shard.shape[1], dtype=shard.dtype) for half in (rows // 2, rows - rows // 2)]
            for whole, half in zip(halves, shard.split([rows // 2, rows - rows // 2]), strict=True):
                dist.all_gather(list(whole.unbind()), half.contiguous(), group=group)
            WEIGHTS[key] = torch.cat(halves, 1).flatten(0, 1)
        ctx.save_for_backward(ids)
        ctx.shape, ctx.first = shard.shape, dist.get_rank(group) * len(shard)
        return WEIGHTS[key][ids]

    @staticmethod
    def backward(ctx, gradient):
        local = ctx.saved_tensors[0].reshape(-1) - ctx.first
        own = (local >= 0) & (local < ctx.shape[0])
        rows = gradient.reshape(-1, ctx.shape[1])
        return gradient.new_zeros(ctx.shape).index_add_(0, local[own], rows[own]), None, None


def vocabulary_embedding(ids, shard, group=None):
    return Lookup.apply(shard, ids, group)
