"""The conjugate pair f and g: what one does in forward, the other does in backward.

A layer whose weights are divided over the ranks of a group begins with f and ends with g. Every rank has the
same input; f hands it on, and g adds up what the ranks make of it. In backward every rank has the same
gradient of the output; g hands it on, and f adds up what the ranks make of it.

| | forward | backward |
|---|---|---|
| f | the output is the input | the gradients of all ranks are added up |
| g | the inputs of all ranks are added up | the gradient is handed on as it is |

**Given** `group`, the process group of the ranks that share the layer. It may have fewer ranks than the job, and
a program may have several groups, each with its own pair.

**Return** a tuple of two functions, f and g. Each takes a floating-point tensor and returns one of the same shape
and dtype, and autograd can go backward through it. Tensors and gradients may have any shape and strides.

**Rules**:

- Neither changes a tensor that it is given, in forward or in backward: autograd may hand one gradient to several
  branches.
- In a group of two or more ranks f sends nothing in forward and makes one call in backward; g makes one call in
  forward and sends nothing in backward. Such a call hands over the bytes of one such tensor.

**Example** with two ranks, `y = f(x)` and `z = g(x)`; both are given the gradient in the last column:

| | `x` | `y` | `x.grad` through `y` | `z` | `x.grad` through `z` | gradient |
|---|---|---|---|---|---|---|
| rank 0 | `[1, 2]` | `[1, 2]` | `[11, 13]` | `[4, 6]` | `[1, 3]` | `[1, 3]` |
| rank 1 | `[3, 4]` | `[3, 4]` | `[11, 13]` | `[4, 6]` | `[10, 10]` | `[10, 10]` |
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

Function = Callable[[torch.Tensor], torch.Tensor]


def f_and_g(group: dist.ProcessGroup) -> tuple[Function, Function]:
    """Return f and g of a group."""

    # BEGIN SOLUTION: two autograd functions; one all-reduces in backward, the other in forward
    def summed(x: torch.Tensor) -> torch.Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return summed(gradient)

    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return summed(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient

    return Copy.apply, Reduce.apply
    # END SOLUTION
