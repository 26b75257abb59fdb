# expect: DTL-VALUE-REDUCED-AGAIN
# says: as a hook on the input itself does

import torch
import torch.distributed as dist


def f_and_g(group):
    def summed(x):
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return summed(x)

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    def f(x):
        if x.requires_grad:
            x.register_hook(summed)
        return x

    return f, Reduce.apply
