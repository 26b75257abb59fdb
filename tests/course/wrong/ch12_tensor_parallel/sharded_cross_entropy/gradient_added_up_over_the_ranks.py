# expect: DTL-MISTAKE
# says: must not be added up over the ranks again

import torch
import torch.distributed as dist


def sharded_cross_entropy(logits, targets, group=None):
    return Loss.apply(logits, targets, group)


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets, group):
        columns = logits.shape[-1]
        local = targets - dist.get_rank(group) * columns
        foreign = (local < 0) | (local >= columns)
        column = local.masked_fill(foreign, 0).unsqueeze(-1)
        counts = targets != -100
        largest = logits.amax(-1)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        shifted = logits - largest.unsqueeze(-1)
        logit = shifted.gather(-1, column).squeeze(-1).masked_fill(foreign, 0.0)
        dist.all_reduce(logit, group=group)
        exponentials = shifted.exp()
        total = exponentials.sum(-1)
        dist.all_reduce(total, group=group)
        ctx.save_for_backward(exponentials / total.unsqueeze(-1), column, foreign, counts)
        ctx.group = group
        return (total.log() - logit)[counts].mean()

    @staticmethod
    def backward(ctx, gradient):
        softmax, column, foreign, counts = ctx.saved_tensors
        dx = softmax.scatter_add(-1, column, -(~foreign).unsqueeze(-1).to(softmax.dtype))
        dx = dx * counts.unsqueeze(-1) / counts.sum()
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return dx * gradient, None, None
