# expect: DTL-VALUE-DIGITS
# says: as if rounded to float32 on the way
import torch
import torch.distributed as dist
import torch.nn.functional as F


class AddUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        total = x.to(torch.float32, copy=True)
        dist.all_reduce(total, group=group)
        return total.to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def vocabulary_embedding(ids, shard, group=None):
    local = ids - dist.get_rank(group) * len(shard)
    foreign = (local < 0) | (local >= len(shard))
    rows = F.embedding(local.masked_fill(foreign, 0), shard)
    return AddUp.apply(rows.masked_fill(foreign.unsqueeze(-1), 0.0), group)
