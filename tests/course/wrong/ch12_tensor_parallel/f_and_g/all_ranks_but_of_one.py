# expect: DTL-VALUE-GROUP-IGNORED
# says: over all ranks of the job, not those of the group

import torch
import torch.distributed as dist


def f_and_g(group):
    def summed(x):
        if dist.get_world_size(group) == 1:
            return x.clone()
        y = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(y)
        return y

    class Fn(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return summed(gradient)

    class G(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return summed(x)

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    return Fn.apply, G.apply
