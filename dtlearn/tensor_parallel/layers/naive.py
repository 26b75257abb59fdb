"""Two other ways to divide a feed-forward network: one sends more bytes, in the other each rank computes everything.

Elements that a rank sends for one network, in units of (t-1)/t; b batch, s sequence length, C hidden size, F = 4 C:

                              forward              backward             with F = 4 C    a rank computes
    outputs gathered          b s F + b s C        2 b s C + 2 b s F    15 b s C        1/t
    weights gathered          2 F C (and biases)   nothing              8 C^2           everything
    columns, then rows        2 b s C              2 b s C              4 b s C         1/t

With more than 2 C tokens (b s), gathering the weights sends less than the pair does. It is what ZeRO-3 does, and there
it is no waste: each rank has another batch. Here all ranks have the same one, and each computes the whole network.
"""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.models.gpt import FeedForward

from ..mappings import gather_from_tensor_parallel_region
from .linear import ColumnParallelLinear
from .parameters import ParallelModule


class WeightGatheredLinear(ColumnParallelLinear):
    """A layer whose weight is divided, and whose product is not: (B, T, in) -> (B, T, out) on every rank.

    **Communication**: forward one all-gather of the weight and one of the bias; backward none, since
    all ranks have the same gradient of the whole weight, and each takes its part.
    **Memory**: 1/t of the weight; and from forward to backward all of it.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, in) -> (B, T, out); all ranks of the group call it."""
        weight = gather_from_tensor_parallel_region(self.weight, 0, group=self.group)  # (out, in)
        bias = None
        if self.bias is not None:
            bias = gather_from_tensor_parallel_region(self.bias, 0, group=self.group)  # (out,)
        return F.linear(x, weight, bias)


class _NaiveFeedForward(ParallelModule):
    def __init__(self, up: ColumnParallelLinear, down: ColumnParallelLinear, dropout: float) -> None:
        super().__init__()
        self.up, self.down, self.dropout, self.group = up, down, nn.Dropout(dropout), up.group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, T, C); all ranks of the group call it."""
        hidden = F.gelu(self.up(x))  # (B, T, F), on every rank
        y: torch.Tensor = self.dropout(self.down(hidden))  # (B, T, C)
        return y


class OutputGatheredFeedForward(_NaiveFeedForward):
    """Both layers by columns, and the output gathered after each: (B, T, C) -> (B, T, C).

    **Communication**: forward an all-gather of b s F elements and one of b s C; backward an
    all-reduce of b s F elements and one of b s C.
    **Memory**: 1/t of the weights; what is inside, b s F elements, whole on every rank.
    """

    @classmethod
    def from_feed_forward(cls, feed_forward: FeedForward, *, group: dist.ProcessGroup | None = None) -> Self:
        """This rank's part of an undivided MLP, the same on all ranks.

        Args:
            feed_forward: the undivided MLP.
            group: ranks that it is divided among; None: all ranks.
        """
        options: dict[str, Any] = {"gather_output": True, "group": group}
        up = ColumnParallelLinear.from_linear(feed_forward.up, **options)
        return cls(up, ColumnParallelLinear.from_linear(feed_forward.down, **options), feed_forward.dropout.p)


class WeightGatheredFeedForward(_NaiveFeedForward):
    """Both weights are gathered, and every rank computes everything: (B, T, C) -> (B, T, C).

    **Communication**: forward four all-gathers, of 2 F C + F + C elements; backward none.
    **Memory**: 1/t of the weights, and from forward to backward all of them.
    """

    @classmethod
    def from_feed_forward(cls, feed_forward: FeedForward, *, group: dist.ProcessGroup | None = None) -> Self:
        """This rank's part of an undivided MLP, the same on all ranks.

        Args:
            feed_forward: the undivided MLP.
            group: ranks that it is divided among; None: all ranks.
        """
        up = WeightGatheredLinear.from_linear(feed_forward.up, group=group)
        return cls(up, WeightGatheredLinear.from_linear(feed_forward.down, group=group), feed_forward.dropout.p)
