"""The two products of Megatron-LM, as functions of this rank's weights: by columns, and by rows.

    h[B, T, F_t]      = x[B, T, C] W[F_t, C]        `column_parallel_linear`: f, and then a product
    y[B, T, C] {U_t}  = h[B, T, F_t] V[C, F_t]      `row_parallel_linear`: a product, and then g
    y[B, T, C]        = all-reduce y

W and V are as `nn.Linear` has its weights: outputs first. C is any hidden size, F any feed-forward size, t the ranks.

Source: Shoeybi et al., "Megatron-LM", 1909.08053, section 3, figure 3.
"""

from __future__ import annotations

import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from ..mappings import copy_to_tensor_parallel_region, reduce_from_tensor_parallel_region


def column_parallel_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, group: dist.ProcessGroup | None = None
) -> Tensor:
    """This rank's output features of a whole input: (B, T, C) -> (B, T, F/t).

    **Communication**: forward none; backward one all-reduce of the input's gradient.
    **Memory**: kept for backward: the input, whole on every rank.

    Args:
        x: (B, T, C), the same on all ranks.
        weight: this rank's (F/t, C).
        bias: this rank's (F/t,), or None.
        group: None: all ranks.
    """
    x = copy_to_tensor_parallel_region(x, group=group)  # f
    return F.linear(x, weight, bias)  # (B, T, F/t)


def row_parallel_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, group: dist.ProcessGroup | None = None
) -> Tensor:
    """The output of an input of which each rank has its features: (B, T, F/t) -> (B, T, C).

    **Communication**: forward one all-reduce of the partial sums; backward none.
    **Memory**: kept for backward: 1/t of the input.

    Args:
        x: this rank's (B, T, F/t).
        weight: this rank's (C, F/t).
        bias: (C,), the same on all ranks, or None.
        group: None: all ranks.
    """
    partial = F.linear(x, weight)  # (B, T, C) {U_t}
    y = reduce_from_tensor_parallel_region(partial, group=group)  # g: (B, T, C)
    return y if bias is None else y + bias  # once: before the sum it would be added t times
