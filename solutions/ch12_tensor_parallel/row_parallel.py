"""A linear layer whose input features are divided over the ranks.

In a row-parallel layer each rank has a part of the input features, and the columns of the weight (out, in) that
belong to them. What a rank makes of them is a partial sum of **all** output features.

Write a class with

- `__init__(self, weight, bias, group, g)`. Given are the whole weight (out, in) and the whole bias (out,), or
  `None`, the same on all ranks of `group`; and `g`, the function of the exercise before, for this group: it adds up
  a tensor over the ranks, and hands the gradient on.
- `weight`, an `nn.Parameter` (out, in/t): of the t ranks of the group each takes in/t columns, contiguous, in the
  order of the ranks in the group. `bias`, an `nn.Parameter` (out,), or `None`. Both are copies: a change
  of one does not reach what was given, and the caller can free that. The module has no other parameters.
- `forward(self, x)`. `x` has the shape (..., in/t): this rank's part of the features. Return (..., out), **the same on
  all ranks**, as `F.linear` of the whole input, weight and bias makes it.

In backward every rank is given the same gradient of the output. Afterwards the gradients of `x` and `weight` are
this rank's parts of those of the whole layer, and that of `bias` is the whole one's, **on every rank**: each rank's
optimizer updates its own copy of it.

If t does not divide the input features, `__init__` raises a `ValueError` with a message that names both numbers.

**Rule**: in a group of several ranks `forward` calls `g` once; there is no other communication.

**Example** with two ranks and one output feature, weight `[[2, 3]]`, bias `[10]`, input `[4, 5]`, gradient 1:

| | rank 0 | rank 1 |
|---|---|---|
| `weight` | `[[2]]` | `[[3]]` |
| `x` | `[4]` | `[5]` |
| output: 2 · 4 + 3 · 5 + 10 | `[33]` | `[33]` |
| gradient of `x`, of `weight`, of `bias` | `[2]`, `[[4]]`, `[1]` | `[3]`, `[[5]]`, `[1]` |
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F

Function = Callable[[torch.Tensor], torch.Tensor]


class row_parallel(torch.nn.Module):
    """A linear layer of which this rank has a part of the input features."""

    bias: torch.nn.Parameter | None

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        group: dist.ProcessGroup,
        g: Function,
    ) -> None:
        super().__init__()
        # BEGIN SOLUTION: refuse what does not fit; this rank's columns, and the bias
        num_ranks, size = dist.get_world_size(group), weight.shape[1]
        if size % num_ranks:
            raise ValueError(f"{num_ranks} ranks do not divide {size} input features")
        columns = weight.chunk(num_ranks, 1)[dist.get_rank(group)]
        self.weight = torch.nn.Parameter(columns.clone())
        self.bias = None if bias is None else torch.nn.Parameter(bias.clone())
        self.g = g
        # END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the whole output on every rank, (..., in/t) -> (..., out)."""
        # BEGIN SOLUTION: a partial sum, the sum over the ranks, and the bias
        y = self.g(F.linear(x, self.weight))
        return y if self.bias is None else y + self.bias
        # END SOLUTION
