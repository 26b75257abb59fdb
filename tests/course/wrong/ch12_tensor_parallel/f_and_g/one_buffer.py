# expect: DTL-VALUE-RESULT-SHARED
# says: the second call of g changed

import torch
import torch.distributed as dist


def f_and_g(group):
    buffers = {}

    def summed(x):
        total = buffers.setdefault((x.shape, x.dtype), torch.empty(x.shape, dtype=x.dtype))
        total.copy_(x)
        dist.all_reduce(total, group=group)
        return total

    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return summed(gradient)

    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return summed(x)

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    return Copy.apply, Reduce.apply
