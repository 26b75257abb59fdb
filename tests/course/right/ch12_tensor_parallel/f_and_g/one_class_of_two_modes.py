import torch
import torch.distributed as dist


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, in_forward):
        ctx.group, ctx.in_backward = group, not in_forward
        return add_up(x, group) if in_forward else x

    @staticmethod
    def backward(ctx, gradient):
        return (add_up(gradient, ctx.group) if ctx.in_backward else gradient), None, None


def add_up(x, group):
    if dist.get_world_size(group) == 1:
        return x.clone()
    flat = x.flatten().clone()
    dist.all_reduce(flat, op=dist.ReduceOp.SUM, group=group, async_op=True).wait()
    return flat.reshape(x.shape)


def f_and_g(group):
    def add_up_to(x, in_forward):
        return Pair.apply(x, group, in_forward)

    return (lambda x: add_up_to(x, False)), (lambda x: add_up_to(x, True))
