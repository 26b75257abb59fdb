"""Causal self-attention divided by heads: three column-parallel layers, the heads, and a row-parallel layer.

Shapes in this file:
    B  batch      T  sequence length      C  hidden size      t  ranks
    H  query heads of the whole layer     H_kv  key-value heads     D  head size, C / H

    q[B, T, H_t D], k, v    by columns, in whole heads; no communication
    y[B, T, H_t D]          each head by itself; no communication
    out[B, T, C] {U_t}      by rows: one reduction

Source: Shoeybi et al., "Megatron-LM", 1909.08053, section 3, figure 3b.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.models.gpt import Attention
from dtlearn.sharing.shards import rank_and_size

from ..initial_weights import shared_generator
from ..layers.gathered_products import gathered_products
from ..layers.linear import SEQUENCE_DIM, ColumnParallelLinear, RowParallelLinear
from ..layers.overlap import overlapped_products
from ..layers.parameters import ParallelModule, require_names, require_own_parameters
from ..mappings import copy_to_tensor_parallel_region, gather_from_sequence_parallel_region
from ..random_states import RandomStateTracker
from .fused import FusedLayout, split_fused_qkv
from .heads import divide_heads

_Parameters = tuple[torch.Tensor, torch.Tensor | None]  # weight (rows, C), and bias (rows,) or None


class ParallelAttention(ParallelModule):
    """Attention with H/t heads on each rank: (B, T, C) -> (B, T, C).

    **Communication**: one all-reduce of b s C elements forward (g) and one backward (f), for each
    of which a rank sends 2 b s C (t-1)/t. With `sequence_parallel` an all-gather and a reduce-scatter
    forward, and the same backward: the same bytes. Where ranks have copies of key-value heads, also
    one all-reduce of 2 H_kv D (C + 1) elements in backward, their gradients.
    **Memory**: 1/t of the weights; of key and value D C elements each where a head has copies, and
    all H_kv times as much while their gradients are summed. Kept for backward: the input, once for
    q, k and v, and 1/t of what is inside.

    Args:
        hidden_size: C.
        num_heads: H, a multiple of t.
        num_kv_heads: H_kv, a multiple of t or a divisor of it; None: H.
        bias: whether the four layers have biases.
        dropout: probability of dropping an attention probability, and an element of the output.
        sequence_parallel: input and output have this rank's tokens only, (B, T/t, C).
        overlap: compute the weights' gradients while the input's is being reduced.
        gather_again: with `sequence_parallel`: keep this rank's tokens of the input, and gather all
            again in backward; see `gathered_products`.
        random_states: the rank's own random state, for the dropout of its heads; None: the default
            one, which gives the heads of all ranks the same masks if ranks are seeded alike.
        generator, device, dtype: as for `ColumnParallelLinear`.
        group: ranks that the heads are divided among; None: all ranks.

    Raises:
        ValueError: the ranks do not divide the heads, or the heads do not divide C.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        bias: bool = True,
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
        if hidden_size % num_heads:
            raise ValueError(f"num_heads ({num_heads}) must divide hidden_size ({hidden_size})")
        if overlap and sequence_parallel:
            raise ValueError("overlap is for the all-reduce of f: leave out sequence_parallel")
        self.hidden_size, self.num_heads, self.head_size = hidden_size, num_heads, hidden_size // num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.rank, self.num_ranks = rank_and_size(group)
        self.heads = divide_heads(num_heads, self.num_kv_heads, self.num_ranks)
        if gather_again and not sequence_parallel:
            raise ValueError("gather_again is for tokens that this layer gathers: it needs sequence_parallel")
        self.sequence_parallel, self.overlap, self.gather_again = sequence_parallel, overlap, gather_again
        self.group = group
        self.random_states = random_states
        own: dict[str, Any] = {"bias": bias, "device": "meta", "dtype": dtype, "group": group}
        of_kv = self.num_kv_heads * self.heads.copies * self.head_size  # H_kv D; with copies t D
        self.query = ColumnParallelLinear(hidden_size, hidden_size, input_is_copied=True, **own)
        self.key = ColumnParallelLinear(hidden_size, of_kv, input_is_copied=True, **own)
        self.value = ColumnParallelLinear(hidden_size, of_kv, input_is_copied=True, **own)
        self.output = RowParallelLinear(hidden_size, hidden_size, sequence_parallel=sequence_parallel, **own)
        self.dropout = nn.Dropout(dropout)
        for layer in (self.key, self.value):
            layer.num_copies = self.heads.copies  # type: ignore[assignment]  # in a norm, a copy counts once
        if torch.device(device or "cpu").type != "meta":
            self._draw(generator, device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, T, C), or (B, T/t, C) -> (B, T/t, C); all ranks of the group call it."""
        q, k, v = (
            y.unflatten(-1, (-1, self.head_size)).transpose(1, 2)  # (B, T, C/t) -> (B, H/t, T, D)
            for y in self._project(x)
        )
        dropout = self.dropout.p if self.training else 0.0
        with self._own_random_state():  # other heads, other masks
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=True)
        y = self.output(y.transpose(1, 2).flatten(2))  # (B, T, C/t) -> (B, T, C)
        with self._own_random_state() if self.sequence_parallel else nullcontext():
            out: torch.Tensor = self.dropout(y)  # (B, T, C)
        return out

    def _project(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(B, T, C) -> q (B, T, C/t), k and v (B, T, H_kv D/t): f (or the gathered tokens) once for all three."""
        layers = (self.query, self.key, self.value)
        for layer in layers:
            require_own_parameters(layer)
        if self.overlap or self.gather_again:
            products = overlapped_products if self.overlap else gathered_products
            return products(x, (self.query.weight, self.query.bias), *self._key_value(), group=self.group)
        if self.sequence_parallel:
            x = gather_from_sequence_parallel_region(x, SEQUENCE_DIM, group=self.group)
        else:
            x = copy_to_tensor_parallel_region(x, group=self.group)
        if self.heads.copies == 1:
            return tuple(layer(x) for layer in layers)
        return self.query(x), *(F.linear(x, weight, bias) for weight, bias in self._key_value())

    def _key_value(self) -> list[_Parameters]:
        """Weight and bias of key and of value."""
        own: list[_Parameters] = [(layer.weight, layer.bias) for layer in (self.key, self.value)]
        return own if self.heads.copies == 1 else self._with_summed_gradients(own)

    def _with_summed_gradients(self, own: list[_Parameters]) -> list[_Parameters]:
        """f for copied parameters: the copies of a head meet different query heads, so each has a part of the gradient.

        A rank puts its head in its place among zeros, so that one sum over all ranks serves all heads. (A group of the
        copies would send less, but all ranks of the world would have to make it, not only these.)
        """
        is_biased = own[0][1] is not None
        together = torch.stack([w if b is None else torch.cat([w, b[:, None]], 1) for w, b in own])  # (2, D, C + 1)
        head, zeros = self.rank // self.heads.copies, torch.zeros_like(together)
        placed = torch.stack([together if other == head else zeros for other in range(self.num_kv_heads)])
        summed = copy_to_tensor_parallel_region(placed, group=self.group)[head]  # (2, D, C + 1)
        return [(x[:, :-1], x[:, -1]) if is_biased else (x, None) for x in summed]

    def _own_random_state(self) -> AbstractContextManager[None]:
        return self.random_states.fork() if self.random_states else nullcontext()

    @torch.no_grad()
    def _draw(self, generator: torch.Generator | None, device: torch.device | str | None) -> None:
        """Draw each parameter whole, as `nn.Linear` does, and keep this rank's part: t does not change the model."""
        generator = generator if generator is not None else shared_generator(group=self.group)
        bound = 1 / math.sqrt(self.hidden_size)
        for layer, shapes in self._whole_shapes().items():
            whole = {
                name: torch.empty(shape, dtype=self.query.weight.dtype).uniform_(-bound, bound, generator=generator)
                for name, shape in shapes.items()
            }
            self._load(layer, {name: full.to(device or "cpu") for name, full in whole.items()})

    def load_full(self, whole: Mapping[str, torch.Tensor]) -> None:
        """See `ParallelModule`. With copies: the whole key or value weight t / H_kv times, for a moment."""
        require_names(self, whole)
        for layer, shapes in self._whole_shapes().items():
            self._load(layer, {name: whole[f"{layer}.{name}"] for name in shapes})

    def _load(self, layer: str, whole: dict[str, torch.Tensor]) -> None:
        for name, shape in self._whole_shapes()[layer].items():
            if whole[name].shape != shape:
                raise ValueError(
                    f"{layer}.{name} is {shape} in the whole layer, with {self.num_heads} query and "
                    f"{self.num_kv_heads} key-value heads of size {self.head_size}; got {tuple(whole[name].shape)}"
                )
        if layer in ("key", "value"):
            whole = {name: self._with_copies(full) for name, full in whole.items()}
        getattr(self, layer).load_full(whole)

    def _with_copies(self, full: torch.Tensor) -> torch.Tensor:
        """Repeat each head as often as ranks have it: (H_kv D, ...) -> (t D, ...)."""
        copies = self.heads.copies
        if copies == 1:
            return full
        by_head: torch.Tensor = full.detach().unflatten(0, (self.num_kv_heads, -1))
        copied = by_head.repeat_interleave(copies, 0).flatten(0, 1)
        return nn.Parameter(copied, full.requires_grad) if isinstance(full, nn.Parameter) else copied

    def _whole_shapes(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """The shapes of the undivided layer, by layer and parameter."""
        features = dict.fromkeys(("query", "key", "value", "output"), self.hidden_size)
        features["key"] = features["value"] = self.num_kv_heads * self.head_size
        biased = self.query.bias is not None
        return {
            layer: {"weight": (size, self.hidden_size)} | ({"bias": (size,)} if biased else {})
            for layer, size in features.items()
        }

    def full_params(self) -> dict[str, torch.Tensor]:
        """See `ParallelModule`; of the copies of a key-value head the first."""
        whole = super().full_params()
        if self.heads.copies > 1:
            for name in whole:
                if name.startswith(("key.", "value.")):  # the first of the copies of each head
                    by_head = whole[name].unflatten(0, (self.num_kv_heads, self.heads.copies, -1))
                    whole[name] = by_head[:, 0].flatten(0, 1)
        return whole

    @classmethod
    def from_attention(
        cls, attention: Attention, *, group: dist.ProcessGroup | None = None, **options: Any
    ) -> ParallelAttention:
        """This rank's heads of an undivided `dtlearn.models` attention, the same on all ranks.

        **Communication**: none. **Memory**: 1/t of the weights, beside the given ones.

        Args:
            attention: the undivided layer; no reference to it is kept.
            group: as for the class.
            options: the other arguments of the class, by keyword.
        """
        hidden_size = attention.query.in_features
        num_heads, dropout = hidden_size // attention.head_size, attention.dropout.p
        layer = cls(hidden_size, num_heads, dropout=dropout, device="meta", group=group, **options)
        layer.load_full(dict(attention.named_parameters()))
        return layer

    @classmethod
    def from_fused(
        cls,
        qkv: nn.Linear,
        output: nn.Linear,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        layout: FusedLayout = "blocks",
        group: dist.ProcessGroup | None = None,
        **options: Any,
    ) -> ParallelAttention:
        """This rank's heads of a layer with one weight for q, k and v, see `split_fused_qkv`.

        **Communication**: none. **Memory**: 1/t of the weights; for the layout by groups also q, k and v for a moment.

        Args:
            qkv, output: the undivided layers, the same on all ranks; no reference to them is kept.
            num_heads, num_kv_heads: H and H_kv.
            layout: of the rows of `qkv`.
            group: as for the class.
            options: the other arguments of the class, by keyword.
        """
        options |= {"num_kv_heads": num_kv_heads, "bias": qkv.bias is not None}
        layer = cls(qkv.in_features, num_heads, device="meta", group=group, **options)
        whole = {f"output.{name}": parameter for name, parameter in output.named_parameters()}
        for name, parameter in qkv.named_parameters():
            parts = split_fused_qkv(parameter.detach(), num_heads, num_kv_heads=num_kv_heads, layout=layout)
            whole |= {f"{part}.{name}": tensor for part, tensor in parts._asdict().items()}
        layer.load_full(whole)
        return layer

    def extra_repr(self) -> str:
        """This rank's heads."""
        copies = f", one of {self.heads.copies} copies" if self.heads.copies > 1 else ""
        return (
            f"{self.heads.query} of {self.num_heads} query heads, {self.heads.key_value} of {self.num_kv_heads} "
            f"key-value heads{copies}, rank {self.rank} of t = {self.num_ranks}"
        )
