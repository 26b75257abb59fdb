"""SwiGLU, the feed-forward network of Llama, divided over ranks; and how a fused weight has to be cut.

Shapes: B batch, T sequence length, C hidden size, F feed-forward size, t ranks.

    y = (silu(x gate) * (x up)) down        gate and up [C, F_t], by columns; down [F_t, C], by rows

Feature i of `gate` is multiplied by feature i of `up`, so a rank needs the same features of both. Often both are one
weight, (2F, C), gate above up, for one product in place of two. Cut in t contiguous parts it gives rank 0 of 2 all of
`gate` and rank 1 all of `up`. As (2, F, C) it is divided along dim 1, and each rank has its part of both halves.

Sources: Shazeer, "GLU Variants Improve Transformer", 2002.05202; Shoeybi et al., "Megatron-LM", 1909.08053, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Self

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.sharing.shards import divide, rank_and_size, shard

from ..initial_weights import shared_generator
from ..mappings import copy_to_tensor_parallel_region, gather_from_sequence_parallel_region
from .gathered_products import SEQUENCE_DIM
from .linear import RowParallelLinear
from .overlap import overlapped_products
from .parameters import ParallelModule, in_notation, require_names, require_own_parameters, take


class SwiGLU(nn.Module):
    """The undivided network: (B, T, C) -> (B, T, C), without biases.

    Args:
        hidden_size: C.
        feed_forward_size: F.
    """

    def __init__(self, hidden_size: int, feed_forward_size: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden_size, feed_forward_size, bias=False)
        self.up = nn.Linear(hidden_size, feed_forward_size, bias=False)
        self.down = nn.Linear(feed_forward_size, hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, T, C)."""
        out: torch.Tensor = self.down(F.silu(self.gate(x)) * self.up(x))  # (B, T, C)
        return out


class FusedColumnParallelLinear(ParallelModule):
    """`gate` and `up` as one weight: (B, T, C) -> two of (B, T, F/t). f is applied once, for both.

    **Communication**: forward none, backward one all-reduce of b s C elements (f); with
    `sequence_parallel` an all-gather forward and a reduce-scatter backward.
    **Memory**: 1/t of both weights. Kept for backward: the input, once.

    Args:
        hidden_size: C.
        feed_forward_size: F, a multiple of t.
        sequence_parallel: the input has this rank's tokens only, (B, T/t, C).
        overlap: compute the weight's gradient while the input's is being reduced.
        generator: as for `ColumnParallelLinear`.
        device, dtype: of the parameters.
        group: ranks that the layer is divided among; None: all ranks.

    Raises:
        ValueError: the ranks do not divide F, or `overlap` with `sequence_parallel`.
    """

    split_dims: ClassVar[dict[str, int | None]] = {"weight": 1}  # of (2, F, C)

    def __init__(
        self,
        hidden_size: int,
        feed_forward_size: int,
        *,
        sequence_parallel: bool = False,
        overlap: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        if overlap and sequence_parallel:
            raise ValueError("overlap is for the all-reduce of f: leave out sequence_parallel")
        self.sequence_parallel, self.overlap, self.group = sequence_parallel, overlap, group
        self.rank, self.num_ranks = rank_and_size(group)
        part = divide(feed_forward_size, self.num_ranks, "feed-forward features")
        self.weight = nn.Parameter(torch.empty(2, part, hidden_size, device=device, dtype=dtype))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw both whole weights as `nn.Linear` does, and keep this rank's part. Nothing on the meta device.

        **Communication**: without a generator one broadcast of 8 bytes. **Memory**: both weights, whole, for a moment.

        Args:
            generator: in the same state on all ranks.
        """
        if self.weight.is_meta:
            return
        generator = generator if generator is not None else shared_generator(group=self.group)
        _, part, hidden_size = self.weight.shape
        full = torch.empty(2, part * self.num_ranks, hidden_size, dtype=self.weight.dtype, device=generator.device)
        bound = 1 / math.sqrt(hidden_size)
        self.weight.copy_(shard(full.uniform_(-bound, bound, generator=generator), 1, group=self.group))

    def load_full(self, whole: Mapping[str, torch.Tensor]) -> None:
        """See `ParallelModule`. `whole`: "weight", gate above up, (2F, C) or (2, F, C); each half is divided."""
        require_names(self, whole)
        _, part, hidden_size = self.weight.shape
        features = part * self.num_ranks
        full = whole["weight"]
        if tuple(full.shape) not in {(2 * features, hidden_size), (2, features, hidden_size)}:
            raise ValueError(
                f"gate above up is ({2 * features}, {hidden_size}) in the whole layer; got {tuple(full.shape)}"
            )
        halves = full.view(2, features, hidden_size)
        take(self, "weight", shard(halves, 1, group=self.group), full)  # of each half its features: (2, F/t, C)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, T, C) -> gate and up, (B, T, F/t) each; all ranks of the group call it."""
        require_own_parameters(self)
        weight = self.weight.flatten(0, 1)  # (2F/t, C): this rank's gate above this rank's up
        if self.overlap:
            (both,) = overlapped_products(x, (weight, None), group=self.group)
        elif self.sequence_parallel:
            both = F.linear(gather_from_sequence_parallel_region(x, SEQUENCE_DIM, group=self.group), weight)
        else:
            both = F.linear(copy_to_tensor_parallel_region(x, group=self.group), weight)  # (B, T, 2F/t)
        gate, up = both.chunk(2, -1)
        return gate, up

    def extra_repr(self) -> str:
        """This rank's part, in notation."""
        _, part, hidden_size = self.weight.shape
        name = in_notation("weight", ("2", "F", "C"), 1)
        whole = (2, part * self.num_ranks, hidden_size)
        return f"{name}: {tuple(self.weight.shape)} of {whole}, rank {self.rank} of t = {self.num_ranks}"


class ParallelSwiGLU(ParallelModule):
    """SwiGLU with 1/t of its features on each rank: (B, T, C) -> (B, T, C).

    **Communication**: one all-reduce of b s C elements forward (g) and one backward (f), for each
    of which a rank sends 2 b s C (t-1)/t. With `sequence_parallel` an all-gather and a reduce-scatter
    forward, and the same backward: the same bytes.
    **Memory**: 1/t of the three weights. Kept for backward: the input, once, and 1/t of what is inside.

    Args:
        hidden_size: C.
        feed_forward_size: F, a multiple of t.
        sequence_parallel: input and output have this rank's tokens only, (B, T/t, C).
        overlap: as for `ColumnParallelLinear`.
        generator: as for `ColumnParallelLinear`.
        device, dtype: of the parameters.
        group: ranks that the layer is divided among; None: all ranks.

    Raises:
        ValueError: the ranks do not divide F.
    """

    def __init__(
        self,
        hidden_size: int,
        feed_forward_size: int,
        *,
        sequence_parallel: bool = False,
        overlap: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.gate_up = FusedColumnParallelLinear(
            hidden_size,
            feed_forward_size,
            sequence_parallel=sequence_parallel,
            overlap=overlap,
            generator=generator,
            device=device,
            dtype=dtype,
            group=group,
        )
        self.down = RowParallelLinear(
            feed_forward_size,
            hidden_size,
            bias=False,
            sequence_parallel=sequence_parallel,
            generator=generator,
            device=device,
            dtype=dtype,
            group=group,
        )
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, T, C), or (B, T/t, C) -> (B, T/t, C); all ranks of the group call it."""
        gate, up = self.gate_up(x)  # (B, T, F/t) each
        y: torch.Tensor = self.down(F.silu(gate) * up)  # (B, T, C)
        return y

    @classmethod
    def from_swiglu(
        cls,
        swiglu: SwiGLU,
        *,
        sequence_parallel: bool = False,
        overlap: bool = False,
        group: dist.ProcessGroup | None = None,
    ) -> Self:
        """This rank's part of an undivided SwiGLU, the same on all ranks; keeps no reference to it.

        **Communication**: none. **Memory**: 1/t of the weights, and `gate` and `up` whole for a moment.

        Args:
            swiglu: the undivided network.
            sequence_parallel, overlap, group: as for the class.

        Raises:
            ValueError: one of `gate` and `up` is frozen, and the other is not.
        """
        width, hidden_size = swiglu.up.weight.shape
        parallel = cls(
            hidden_size, width, sequence_parallel=sequence_parallel, overlap=overlap, device="meta", group=group
        )
        gate, up = swiglu.gate.weight, swiglu.up.weight
        if gate.requires_grad != up.requires_grad:
            raise ValueError("gate and up are one weight here: freeze both, or none of them")
        both = nn.Parameter(torch.stack([gate.detach(), up.detach()]), gate.requires_grad)  # (2, F, C)
        parallel.load_full({"gate_up.weight": both, "down.weight": swiglu.down.weight})
        return parallel
