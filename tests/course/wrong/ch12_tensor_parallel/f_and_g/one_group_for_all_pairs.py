# expect: DTL-VALUE-LAST-GROUP
# says: the pair that was made last

import torch
import torch.distributed as dist


def summed(x):
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=Copy.group)
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


def f_and_g(group):
    Copy.group = group
    return Copy.apply, Reduce.apply
