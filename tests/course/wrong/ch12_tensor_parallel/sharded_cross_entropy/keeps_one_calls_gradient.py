# expect: DTL-VALUE-LAST-CALL
# says: each call keeps what its own backward pass needs

import torch
import torch.distributed as dist

KEPT = {}


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, targets, group):
        local = targets - dist.get_rank(group) * x.shape[-1]
        hot = local.unsqueeze(-1) == torch.arange(x.shape[-1])
        counts = targets != -100
        largest = x.amax(-1)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        shifted = x - largest.unsqueeze(-1)
        sums = torch.stack([shifted.exp().sum(-1), (shifted * hot).sum(-1)])
        dist.all_reduce(sums, group=group)
        softmax = shifted.exp() / sums[0].unsqueeze(-1)
        KEPT["gradient"] = (softmax - hot.to(x.dtype)) * (counts / counts.sum()).to(x.dtype).unsqueeze(-1)
        return (sums[0].log() - sums[1])[counts].mean()

    @staticmethod
    def backward(ctx, gradient):
        return KEPT["gradient"] * gradient, None, None


def sharded_cross_entropy(logits, targets, group=None):
    return Loss.apply(logits, targets, group)
