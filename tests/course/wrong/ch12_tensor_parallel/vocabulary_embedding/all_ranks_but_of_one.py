# expect: DTL-MISTAKE
# says: all ranks are added up, not those of the group

import torch
import torch.distributed as dist
import torch.nn.functional as F


class G(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        y = x.detach().clone()
        if dist.get_world_size(group) > 1:
            dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def vocabulary_embedding(ids, shard, group=None):
    first = dist.get_rank(group) * len(shard)
    local = ids - first
    own = (local >= 0) & (local < len(shard))
    x = F.embedding(local.masked_fill(~own, 0), shard)
    x = x.masked_fill(~own[..., None], 0.0)
    return G.apply(x, group)
