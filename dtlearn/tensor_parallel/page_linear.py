"""Column and row linear on one page: f and g around the product of a layer divided over t ranks.

A linear layer is Y = X W. Megatron-LM divides W by its columns, `up`, or by its rows, `down`:

    by columns    Z[B, T, F_t]     = X[B, T, C] up[C, F_t]      f = copy_to before the product
    by rows       Y[B, T, C] {U_t} = Z[B, T, F_t] down[F_t, C]  g = reduce_from after it: Y[B, T, C]

                  forward                                       backward
    f             nothing: all ranks have X                     all-reduce: each has one term of dX
    g             all-reduce: each rank has one term of Y       nothing: all ranks have dY

What the first layer leaves on a rank is what the second one takes there. Nothing is sent between
them, and an operation on each feature by itself, such as GELU, may stand there. torch stores a
weight transposed, (out, in): columns of `up` are its dim 0, rows of `down` its dim 1.

Source: Shoeybi et al., "Megatron-LM", 1909.08053, section 3, figure 3.
"""

from __future__ import annotations

import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from dtlearn.sharing.differentiable import copy_to, reduce_from
from dtlearn.sharing.shards import shard


class ColumnLinear(nn.Module):
    """(B, T, in), the same on all ranks -> (B, T, out/t), this rank's output features.

    **Communication**: backward one all-reduce of the input's gradient: of n bytes in the input,
    each rank sends 2n (t-1)/t. **Memory**: 1/t of weight and bias; for backward the whole input.
    """

    def __init__(
        self,
        weight: Tensor,  # (out, in), whole, the same on all ranks
        bias: Tensor | None = None,  # (out,)
        *,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(shard(weight, 0, group=group))  # (out/t, in)
        self.bias = None if bias is None else nn.Parameter(shard(bias, 0, group=group))  # (out/t,)

    def forward(self, x: Tensor) -> Tensor:
        """All ranks of the group call it, with the same input."""
        x = copy_to(x, group=self.group)  # f: (B, T, in)
        return F.linear(x, self.weight, self.bias)  # (B, T, out/t)


class RowLinear(nn.Module):
    """(B, T, in/t), this rank's input features -> (B, T, out), the same on all ranks.

    The bias is whole on every rank and added after the sum: before it, it would be added t times.

    **Communication**: forward one all-reduce of the partial sums: of n bytes in the output, each
    rank sends 2n (t-1)/t. **Memory**: 1/t of the weight; for backward 1/t of the input.
    """

    def __init__(
        self,
        weight: Tensor,  # (out, in), whole, the same on all ranks
        bias: Tensor | None = None,  # (out,)
        *,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(shard(weight, 1, group=group))  # (out, in/t)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())  # (out,)

    def forward(self, x: Tensor) -> Tensor:
        """All ranks of the group call it, each with its own features."""
        partial = F.linear(x, self.weight)  # (B, T, out) {U_t}
        y = reduce_from(partial, group=self.group)  # g: (B, T, out)
        return y if self.bias is None else y + self.bias  # once
