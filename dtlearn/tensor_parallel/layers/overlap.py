"""The input's gradient is reduced while the weight's gradient is computed.

In backward a column-parallel layer makes two products, of the gradient `g` of its output, (B, T, out/t):

    g W       (B, T, in) {U_t}    the input's gradient: a partial sum, to be reduced; the layers before it wait for it
    g^T x     (out/t, in)         the weight's gradient: whole at once, and nobody waits for it

f after the layer's own backward does them one after the other: both products, then the all-reduce. Here the reduction
starts as soon as its product is there, and the other product is made meanwhile.

Source: Megatron-LM, `LinearWithGradAccumulationAndAsyncCommunication` in `core/tensor_parallel/layers.py`.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from dtlearn.sharing.shards import rank_and_size

Layer = tuple[torch.Tensor, torch.Tensor | None]  # weight (out/t, in), and bias (out/t,) or None


def overlapped_products(
    x: torch.Tensor, *layers: Layer, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, ...]:
    """f and then some column-parallel products of the same input: (B, T, in) -> one (B, T, out/t) per layer.

    **Communication**: forward none; backward one all-reduce of the input's gradient, during the
    products for the weights' gradients. Without a gradient for the input there is none.
    **Memory**: the input is kept for backward once, for all layers.

    Args:
        x: (B, T, in), the same on all ranks.
        layers: this rank's weight and bias (or None) of each.
        group: None: all ranks.
    """
    x, layers = in_autocast_dtype(x, layers)
    weights, biases = zip(*layers, strict=True)
    outputs: tuple[torch.Tensor, ...] = OverlappedProducts.apply(x, group, *weights, *biases)
    return outputs


def in_autocast_dtype(x: torch.Tensor, layers: tuple[Layer, ...]) -> tuple[torch.Tensor, tuple[Layer, ...]]:
    """Input, weights and biases as autocast would make them for a product; without autocast as they are.

    Inside an autograd function nothing is cast in backward, where the products need one dtype. Which dtype, a product
    of nothing says: so any autocast counts, PyTorch's and that of chapter 7.

    **Communication**: none. **Memory**: under autocast a copy in its dtype.

    Args:
        x: the input.
        layers: weight and bias (or None) of each.
    """
    nothing = x.new_empty((0, 0), dtype=torch.float32)
    dtype = torch.mm(nothing, nothing).dtype
    if dtype is torch.float32:
        return x, layers
    cast = tuple((weight.to(dtype), bias if bias is None else bias.to(dtype)) for weight, bias in layers)
    return x.to(dtype), cast


class OverlappedProducts(torch.autograd.Function):
    """For autograd; see `overlapped_products`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup | None, *tensors: Any) -> tuple[torch.Tensor, ...]:
        """The products, from one input; nothing is sent. `tensors`: all weights, then all biases."""
        ctx.group = group
        weights, biases = tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]
        ctx.save_for_backward(x, *weights)
        return tuple(F.linear(x, weight, bias) for weight, bias in zip(weights, biases, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The all-reduce of the input's gradient is under way while the other gradients are computed."""
        x, *weights = ctx.saved_tensors
        of_x, work = None, None
        if ctx.needs_input_grad[0]:
            products = (g @ weight for g, weight in zip(gradients, weights, strict=True))
            of_x = reduce(torch.add, products)  # (B, T, in) {U_t}
            if rank_and_size(ctx.group)[1] > 1:
                work = dist.all_reduce(of_x, group=ctx.group, async_op=True)
        rows, wanted = x.flatten(0, -2), ctx.needs_input_grad[2:]  # rows: (B T, in)
        flat = [g.flatten(0, -2) for g in gradients]  # (B T, out/t)
        of_weights = [g.t() @ rows if wanted[i] else None for i, g in enumerate(flat)]
        of_biases = [g.sum(0) if wanted[len(flat) + i] else None for i, g in enumerate(flat)]
        if work is not None:
            work.wait()  # only now: the layer before needs it
        return of_x, None, *of_weights, *of_biases
