"""The feed-forward network of a block, divided over ranks: a column-parallel layer, then a row-parallel one.

Shapes: B batch, T sequence length, C hidden size, F feed-forward size, t ranks. In notation, with the group's axis t:

    hidden[B, T, F_t] = gelu(x[B, T, C] up[C, F_t])         no communication: GELU treats each feature by itself
    y[B, T, C] {U_t}  = hidden[B, T, F_t] down[F_t, C]      a partial sum: one all-reduce

With `up` by rows instead, its output would be a partial sum, and gelu(a + b) is not gelu(a) + gelu(b): there would have
to be a reduction between the two layers.

Source: Shoeybi et al., "Megatron-LM", 1909.08053, section 3, figure 3a.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Self

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.models.gpt import FeedForward

from ..random_states import RandomStateTracker
from .linear import ColumnParallelLinear, RowParallelLinear
from .parameters import ParallelModule


class ParallelFeedForward(ParallelModule):
    """The MLP of a block, with 1/t of its features on each rank: (B, T, C) -> (B, T, C).

    **Communication**: one all-reduce of b s C elements forward (g) and one backward (f), for each
    of which a rank sends 2 b s C (t-1)/t. With `sequence_parallel` an all-gather and a reduce-scatter
    forward, and the same backward: the same bytes.
    **Memory**: 1/t of both weights and of the first bias. Kept for backward: the input, and 1/t of
    the 2 b s F elements inside.

    Args:
        hidden_size: C.
        feed_forward_size: F, a multiple of t; None: 4 C.
        dropout: probability of dropping an element of the output while training.
        sequence_parallel: input and output have this rank's tokens only, (B, T/t, C).
        overlap, gather_again: as for `ColumnParallelLinear`.
        random_states: the rank's own random state; with `sequence_parallel`, dropout needs it, since
            other ranks have other tokens.
        generator: as for `ColumnParallelLinear`.
        device, dtype: of the parameters.
        group: ranks that the layer is divided among; None: all ranks.

    Raises:
        ValueError: the ranks do not divide F.
    """

    def __init__(
        self,
        hidden_size: int,
        feed_forward_size: int | None = None,
        *,
        dropout: float = 0.0,
        sequence_parallel: bool = False,
        overlap: bool = False,
        gather_again: bool = False,
        random_states: RandomStateTracker | None = None,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        width = 4 * hidden_size if feed_forward_size is None else feed_forward_size
        both: dict[str, Any] = {"sequence_parallel": sequence_parallel, "generator": generator, "group": group}
        both |= {"device": device, "dtype": dtype}
        self.up = ColumnParallelLinear(hidden_size, width, overlap=overlap, gather_again=gather_again, **both)
        self.down = RowParallelLinear(width, hidden_size, **both)  # one reduction
        self.dropout = nn.Dropout(dropout)
        self.group = group
        self.random_states = random_states if sequence_parallel else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, T, C), or (B, T/t, C) -> (B, T/t, C); all ranks of the group call it."""
        hidden = F.gelu(self.up(x))  # (B, T, F/t)
        y = self.down(hidden)  # (B, T, C)
        with self.random_states.fork() if self.random_states else nullcontext():
            out: torch.Tensor = self.dropout(y)  # (B, T, C)
        return out

    @classmethod
    def from_feed_forward(
        cls, feed_forward: FeedForward, *, group: dist.ProcessGroup | None = None, **options: Any
    ) -> Self:
        """This rank's part of an undivided MLP, the same on all ranks; keeps no reference to it.

        **Communication**: none. **Memory**: 1/t of the weights, beside the given ones.

        Args:
            feed_forward: the undivided MLP.
            group: as for the class.
            options: the other arguments of the class, by keyword.
        """
        width, hidden_size = feed_forward.up.weight.shape
        dropout = feed_forward.dropout.p
        parallel = cls(hidden_size, width, dropout=dropout, device="meta", group=group, **options)
        parallel.load_full(dict(feed_forward.named_parameters()))
        return parallel
