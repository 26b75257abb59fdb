"""Under sequence parallelism: column-parallel products that keep the own tokens, and gather all again in backward.

A column-parallel layer needs all tokens twice: forward, and in backward for the weight's gradient. Kept from forward to
backward, the gathered input is a whole (B, T, in) on every rank: just what sequence parallelism was to divide. Here
autograd keeps (B, T/t, in), and backward gathers once more. In the order of the backward pass:

    starts                                    and meanwhile
    all-gather of x                           g W       (B, T, in) {U_t}    the input's gradient
    reduce-scatter of the input's gradient    g^T x     (out/t, in)         the weight's gradient

Both collectives of this layer are overlapped, so the one that is new costs bytes, and hardly time.

Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2205.05198, section 4.2.2;
Megatron-LM, `LinearWithGradAccumulationAndAsyncCommunication` in `core/tensor_parallel/layers.py`.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from dtlearn.sharing.along_dim import all_gather, start_all_gather, start_reduce_scatter

from .overlap import Layer, in_autocast_dtype

SEQUENCE_DIM = -2  # of (B, T, features), and of (tokens, features)


def gathered_products(
    x: torch.Tensor, *layers: Layer, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, ...]:
    """Gather the tokens, then some column-parallel products: (B, T/t, in) -> one (B, T, out/t) per layer.

    **Communication**: forward one all-gather; backward one all-gather and one reduce-scatter, for all
    layers together. Of b s in elements, each rank sends 3 b s in (t-1)/t: half as much again as with
    the gathered input kept.
    **Memory**: kept for backward: 1/t of the input. In backward the gathered input and its gradient.

    Args:
        x: this rank's tokens of the input.
        layers: this rank's weight and bias (or None) of each.
        group: None: all ranks.
    """
    if dist.get_world_size(group) == 1:
        return tuple(F.linear(x, weight, bias) for weight, bias in layers)
    x, layers = in_autocast_dtype(x, layers)
    weights, biases = zip(*layers, strict=True)
    outputs: tuple[torch.Tensor, ...] = _GatheredProducts.apply(x, group, *weights, *biases)
    return outputs


class _GatheredProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup | None, *tensors: Any) -> tuple[torch.Tensor, ...]:
        ctx.group = group
        weights, biases = tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]
        ctx.save_for_backward(x, *weights)  # not the gathered input
        whole = all_gather(x, SEQUENCE_DIM, group=group)  # (B, T, in)
        return tuple(F.linear(whole, weight, bias) for weight, bias in zip(weights, biases, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        wanted, group = ctx.needs_input_grad, ctx.group
        gathered = start_all_gather(x, SEQUENCE_DIM, group=group) if any(wanted[2 : 2 + len(weights)]) else None
        scattered = None
        if wanted[0]:
            products = (g @ weight for g, weight in zip(gradients, weights, strict=True))
            of_whole = reduce(torch.add, products)  # (B, T, in) {U_t}
            scattered = start_reduce_scatter(of_whole, SEQUENCE_DIM, group=group)
        rows = gathered().flatten(0, -2) if gathered is not None else x  # (B T, in)
        flat = [g.flatten(0, -2) for g in gradients]  # (B T, out/t)
        of_weights = [g.t() @ rows if wanted[2 + i] else None for i, g in enumerate(flat)]
        of_biases = [g.sum(0) if wanted[2 + len(flat) + i] else None for i, g in enumerate(flat)]
        return scattered() if scattered is not None else None, None, *of_weights, *of_biases
