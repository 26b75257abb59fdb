# expect: DTL-RAISED
# says: view size is not compatible

import torch
import torch.distributed as dist


def f_and_g(group):
    def summed(x):
        total = x.view(-1).clone(memory_format=torch.contiguous_format).view(x.shape)
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
