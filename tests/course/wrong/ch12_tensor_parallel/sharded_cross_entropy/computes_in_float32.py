# expect: DTL-VALUE-DIGITS
# says: as if rounded to float32 on the way

import torch
import torch.distributed as dist


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, targets, group):
        kept, x = x.dtype, x.float()
        local = targets - dist.get_rank(group) * x.shape[-1]
        hot = local.unsqueeze(-1) == torch.arange(x.shape[-1])
        counts = targets != -100
        largest = x.amax(-1)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        shifted = x - largest.unsqueeze(-1)
        sums = torch.stack([shifted.exp().sum(-1), (shifted * hot).sum(-1)])
        dist.all_reduce(sums, group=group)
        softmax = shifted.exp() / sums[0].unsqueeze(-1)
        g = (softmax - hot.to(x.dtype)) * (counts / counts.sum()).to(x.dtype).unsqueeze(-1)
        ctx.save_for_backward(g.to(kept))
        return (sums[0].log() - sums[1])[counts].mean().to(kept)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0] * gradient, None, None


def sharded_cross_entropy(logits, targets, group=None):
    return Loss.apply(logits, targets, group)
