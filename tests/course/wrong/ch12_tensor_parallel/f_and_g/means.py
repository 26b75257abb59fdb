# expect: DTL-VALUE-AVERAGED
# says: f and g divide by the number of ranks

import torch
import torch.distributed as dist


def f_and_g(group):
    def summed(x):
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total / dist.get_world_size(group)

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
