# expect: DTL-VALUE-IN-PLACE
# says: the gradient that was given in backward has changed

import torch
import torch.distributed as dist


def f_and_g(group):
    def summed(x):
        dist.all_reduce(x, group=group)
        return x

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
            return summed(x.clone())

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    return Copy.apply, Reduce.apply
