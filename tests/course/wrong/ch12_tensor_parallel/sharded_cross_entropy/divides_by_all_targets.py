# expect: DTL-VALUE-IGNORED-COUNTED
# says: ignored targets have the loss 0, and count in the divisor

import torch
import torch.distributed as dist


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets, group):
        logits = logits.detach()
        size = logits.shape[-1]
        m = logits.max(-1).values
        dist.all_reduce(m, op=dist.ReduceOp.MAX, group=group)
        e = (logits - m[..., None]).exp()
        local = targets - dist.get_rank(group) * size
        own = (local >= 0) & (local < size)
        local = local.masked_fill(~own, 0)
        z = logits.gather(-1, local[..., None])[..., 0]
        both = torch.stack([e.sum(-1), (z - m).masked_fill(~own, 0.0)])
        dist.all_reduce(both, group=group)
        counts = targets != -100
        losses = (both[0].log() - both[1]).masked_fill(~counts, 0.0)
        count = targets.numel()
        grad = e / both[0][..., None]
        grad.scatter_add_(-1, local[..., None], -own[..., None].to(grad.dtype))
        grad = grad.masked_fill(~counts[..., None], 0.0) / count
        ctx.save_for_backward(grad)
        return losses.sum() / count

    @staticmethod
    def backward(ctx, gradient):
        (grad,) = ctx.saved_tensors
        return grad * gradient, None, None


def sharded_cross_entropy(logits, targets, group=None):
    return Loss.apply(logits, targets, group)
