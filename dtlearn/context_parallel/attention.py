"""Self-attention of a layer whose tokens are divided: the projections as they are, and attention by one of the methods.

Shapes in this file:
    B  batch    T  sequence length    C  hidden size    H  heads    D  head size    cp  ranks    tp  ranks, of heads

    q, k, v[B, T_cp, C]    each token by itself; no communication
    y[B, H, T_cp, D]       a token attends to those of other ranks: ring, all-gather or Ulysses
    out[B, T_cp, C]        each token by itself; no communication
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dtlearn.models.gpt import Attention

from .all_gather import all_gather_attention
from .ring import ring_attention
from .token_layout import TokenLayout
from .ulysses import ulysses_attention

ContextMethod = Literal["ring", "all-gather", "ulysses"]
METHODS: dict[str, Callable[..., Tensor]] = {
    "ring": ring_attention,
    "all-gather": all_gather_attention,
    "ulysses": ulysses_attention,
}


def context_parallel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    method: ContextMethod = "ring",
    layout: TokenLayout = "zigzag",
    is_causal: bool = True,
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    """Attention by one of the methods, which compute the same: (B, H, T/cp, D) -> (B, H, T/cp, D).

    It stands where a layer calls `F.scaled_dot_product_attention`, also in one whose heads are divided over tp.

    **Communication** and **Memory**: of the method, see `ring_attention`, `all_gather_attention`, `ulysses_attention`.

    Args:
        q, k, v, layout, is_causal, group: as for `ring_attention`.
        method: "ring", "all-gather" or "ulysses".

    Raises:
        ValueError: the heads or the tokens do not fit, or there is no such method.
    """
    if method not in METHODS:
        raise ValueError(f"method is {', '.join(map(repr, METHODS))}; got {method!r}")
    return METHODS[method](q, k, v, layout=layout, is_causal=is_causal, group=group)


class ModuleWithGroup(nn.Module):
    """A module that has a process group, which a deep copy shares: there is no second one."""

    group: dist.ProcessGroup | None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        memo[id(self.group)] = self.group
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied


class ContextParallelAttention(ModuleWithGroup):
    """Causal self-attention of which each rank has T/cp tokens: (B, T/cp, C) -> (B, T/cp, C).

    The projections are those of a full layer, on every rank. With tensor parallelism they are that layer's parts, with
    H/tp heads, and `prepare` is what it does once before all three (f):

        ContextParallelAttention(
            layer.query, layer.key, layer.value, layer.output, head_size=layer.head_size,
            prepare=partial(copy_to_tensor_parallel_region, group=tp), group=cp,
        )

    **Communication**: of the method; see `context_parallel_attention`. The layers' own, if they are divided.
    **Memory**: parameters as before: every rank has them all. Activations are those of T/cp tokens.

    Args:
        query, key, value, output: layers (B, T/cp, C) -> (B, T/cp, heads D), and back; they are shared, not copied.
        head_size: D; the number of heads is taken from what the layers return, and key and value may have fewer.
        method: "ring", "all-gather" or "ulysses".
        layout: which tokens the ranks have.
        prepare: called with the input, before the projections.
        dropout: probability of dropping an attention weight and an element of the output; only 0 is known here.
        group: ranks that the tokens are divided among; None: all ranks.

    Raises:
        ValueError: a method or a layout that is not known, or a dropout above 0.
    """

    def __init__(
        self,
        query: nn.Module,
        key: nn.Module,
        value: nn.Module,
        output: nn.Module,
        *,
        head_size: int,
        method: ContextMethod = "ring",
        layout: TokenLayout = "zigzag",
        prepare: Callable[[Tensor], Tensor] | None = None,
        dropout: float = 0.0,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        if method not in METHODS:
            raise ValueError(f"method is {', '.join(map(repr, METHODS))}; got {method!r}")
        if layout not in ("contiguous", "zigzag"):
            raise ValueError(f"layout is 'contiguous' or 'zigzag'; got {layout!r}")
        if dropout > 0:
            raise ValueError(
                f"dropout={dropout}: a ring would have to draw the mask of each block again in backward, as the flash "
                "kernels do, and this one does not. Train with dropout=0, as long-context models are"
            )
        self.query, self.key, self.value, self.output = query, key, value, output
        self.head_size, self.prepare, self.group = head_size, prepare, group
        self.method: ContextMethod = method
        self.layout: TokenLayout = layout

    @classmethod
    def from_attention(
        cls,
        attention: Attention,
        *,
        method: ContextMethod = "ring",
        layout: TokenLayout = "zigzag",
        group: dist.ProcessGroup | None = None,
    ) -> Self:
        """The layer of `dtlearn.models` with its tokens divided; its projections are shared, under the same names.

        **Communication** and **Memory**: none.

        Args:
            attention: the full layer, the same on all ranks.
            method, layout, group: as for the class.

        Raises:
            ValueError: as for the class.
        """
        return cls(
            attention.query,
            attention.key,
            attention.value,
            attention.output,
            head_size=attention.head_size,
            method=method,
            layout=layout,
            dropout=attention.dropout.p,
            group=group,
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, T/cp, C) -> (B, T/cp, C); all ranks of the group call it."""
        if self.prepare is not None:
            x = self.prepare(x)
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)  # (B, T/cp, C) -> (B, H, T/cp, D)
            for layer in (self.query, self.key, self.value)
        )
        y = context_parallel_attention(q, k, v, method=self.method, layout=self.layout, group=self.group)
        out: torch.Tensor = self.output(y.transpose(1, 2).flatten(2))  # (B, T/cp, C)
        return out

    def extra_repr(self) -> str:
        """How it attends."""
        return f"method={self.method!r}, layout={self.layout!r}, head_size={self.head_size}"
