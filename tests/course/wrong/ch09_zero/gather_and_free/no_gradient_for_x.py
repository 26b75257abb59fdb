# expect: DTL-MISTAKE
# says: x, the output of the unit before, gets no gradient from your function

import torch
import torch.distributed as dist


def whole(shard, group):
    full = shard.new_empty(len(shard) * dist.get_world_size(group))
    dist.all_gather(list(full.chunk(dist.get_world_size(group))), shard.detach(), group=group)
    return full


class Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, compute, group, shard, x):
        ctx.compute, ctx.group = compute, group
        ctx.save_for_backward(shard, x)
        return compute(whole(shard.detach(), group), x)

    @staticmethod
    def backward(ctx, gradient):
        shard, x = ctx.saved_tensors
        n = dist.get_world_size(ctx.group)
        weights = whole(shard.detach(), ctx.group).requires_grad_()
        with torch.enable_grad():
            y = ctx.compute(weights, x.detach())
        (full,) = torch.autograd.grad(y, [weights], gradient)
        mean = torch.empty_like(shard)
        dist.reduce_scatter(mean, list((full / n).chunk(n)), group=ctx.group)
        return None, None, mean, None


def gather_and_free(compute, shard, x, *, group=None):
    return Unit.apply(compute, group, shard, x)
