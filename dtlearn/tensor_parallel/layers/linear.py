"""A linear layer divided over ranks: by its output features (columns) or by its input features (rows).

`page_linear` is the idea. These classes add what a model needs: initial weights that do not depend on t, whole weights
taken and given back, sequence parallelism, the gradient sent while the next one is computed, and errors.

Shapes in this file: B batch, T sequence length, in and out features, t ranks; x may have other dims before the last.

    as a formula           Y = X W, W (in, out)       divided are W's columns      W's rows
    torch's weight         W transposed, (out, in)    dim 0: [out_t, in]           dim 1: [out, in_t]
    the input              (B, T, in)                 whole on every rank          each rank's features
    the output             (B, T, out)                each rank's features         a partial sum {U_t}: reduced

A column-parallel layer and then a row-parallel one need no communication between them: the first one's output is
divided as the second one's input is.

Source: Shoeybi et al., "Megatron-LM", 1909.08053, section 3; Megatron-LM, `core/tensor_parallel/layers.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.sharing.shards import divide, rank_and_size, shard

from ..initial_weights import shared_generator
from ..mappings import (
    copy_to_tensor_parallel_region,
    gather_from_sequence_parallel_region,
    gather_from_tensor_parallel_region,
    reduce_from_tensor_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
    scatter_to_tensor_parallel_region,
)
from ..sequence_parallel import mark_sequence_parallel
from .gathered_products import SEQUENCE_DIM, gathered_products
from .overlap import overlapped_products
from .parameters import ParallelModule, in_notation, require_names, require_own_parameters, take


class _ParallelLinear(ParallelModule):
    """The base of both layers: their part of the weight, how it begins, and their product.

    Attributes:
        product: y = x w^T + b, of (x, weight, bias); a pipeline whose backward pass has two parts puts another in its
            place, see `defer_products` of `dtlearn.pipeline_parallel`. `overlap` and `gather_again` have their
            own.
    """

    product: Callable[..., torch.Tensor] = staticmethod(F.linear)
    split_dims: ClassVar[dict[str, int | None]]
    _divided: ClassVar[str]  # for errors: which features

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool,
        *,
        generator: torch.Generator | None,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        group: dist.ProcessGroup | None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self.group = in_features, out_features, group
        self.rank, self.num_ranks = rank_and_size(group)
        shape = [out_features, in_features]
        split_dim = self.split_dims["weight"]
        assert split_dim is not None
        shape[split_dim] = divide(shape[split_dim], self.num_ranks, self._divided)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        length = out_features if self.split_dims["bias"] is None else shape[0]
        self.bias = nn.Parameter(torch.empty(length, device=device, dtype=dtype)) if bias else None
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the parameters as `nn.Linear` does, each whole, one after the other, and keep this rank's part.

        On the meta device nothing is drawn, and nothing sent.

        **Communication**: without a generator one broadcast of 8 bytes, see `shared_generator`.
        **Memory**: one whole parameter, for a moment.

        Args:
            generator: in the same state on all ranks.
        """
        if self.weight.is_meta:
            return
        generator = generator if generator is not None else shared_generator(group=self.group)
        bound = 1 / math.sqrt(self.in_features)
        for name, parameter in self.named_parameters():
            full = torch.empty(self._whole_shape(name), dtype=parameter.dtype, device=generator.device)
            full.uniform_(-bound, bound, generator=generator)
            parameter.copy_(self._part(name, full))

    @classmethod
    def from_linear(cls, linear: nn.Linear, *, group: dist.ProcessGroup | None = None, **options: Any) -> Self:
        """The layer whose whole weight is that of a `nn.Linear`, the same on all ranks; keeps no reference to it.

        **Communication**: none.
        **Memory**: 1/t of the weight, beside the given layer.

        Args:
            linear: the undivided layer.
            group: as for the class.
            options: the other arguments of the class, by keyword.
        """
        sizes = (linear.in_features, linear.out_features, linear.bias is not None)
        layer = cls(*sizes, device="meta", group=group, **options)  # draws nothing
        layer.load_full(dict(linear.named_parameters()))
        return layer

    def load_full(self, whole: Mapping[str, torch.Tensor]) -> None:
        """See `ParallelModule`. `whole`: "weight" (out, in), and "bias" (out,) if there is one, as `nn.Linear` has."""
        require_names(self, whole)
        for name in dict(self.named_parameters()):
            full, shape = whole[name], self._whole_shape(name)
            if full.shape != shape:
                raise ValueError(
                    f"{name} is {shape} in the whole layer; got {tuple(full.shape)}. Parts of another split are put "
                    "together first"
                )
            take(self, name, self._part(name, full), full)

    def extra_repr(self) -> str:
        """This rank's part, in notation: `weight[out_t, in]: (8, 4) of (16, 4), bias[out_t]: ..., rank 1 of t = 2`."""
        parts = [
            f"{in_notation(name, ('out', 'in')[: parameter.ndim], self.split_dims[name])}: {tuple(parameter.shape)}"
            + ("" if self.split_dims[name] is None else f" of {self._whole_shape(name)}")
            for name, parameter in self.named_parameters()
        ]
        return ", ".join([*parts, f"rank {self.rank} of t = {self.num_ranks}"])

    def _whole_shape(self, name: str) -> tuple[int, ...]:
        return (self.out_features, self.in_features) if name == "weight" else (self.out_features,)

    def _part(self, name: str, full: torch.Tensor) -> torch.Tensor:
        dim = self.split_dims[name]
        return full.detach().clone() if dim is None else shard(full, dim, group=self.group, what=self._divided)


class ColumnParallelLinear(_ParallelLinear):
    """`page_linear.ColumnLinear` with initial weights, sequence parallelism, overlap and gathered outputs.

    A linear layer with 1/t of the output features on each rank: (B, T, in) -> (B, T, out/t).

    **Communication**: forward none, backward one all-reduce of the input's gradient (f): of b s in
    elements, each rank sends 2 b s in (t-1)/t. With `sequence_parallel` one all-gather forward and
    one reduce-scatter backward: together the same bytes. With `gather_output` also one all-gather
    of b s out elements forward. One broadcast of 8 bytes when weights are drawn without a generator.
    **Memory**: 1/t of the weight and bias. Kept for backward: the input, whole on every rank; with
    `gather_again` 1/t of it.

    Args:
        in_features: of the whole layer.
        out_features: of the whole layer; t divides it.
        bias: add a bias; it is divided as the output is.
        gather_output: return (B, T, out), on every rank.
        sequence_parallel: the input has this rank's tokens only, (B, T/t, in).
        input_is_copied: f has been applied already, or the tokens gathered, for several layers with
            the same input; the layer communicates nothing then.
        overlap: compute the weight's gradient while the input's is being reduced; there is no gradient of the
            gradient then.
        gather_again: with `sequence_parallel`: keep this rank's tokens of the input, and gather all
            again in backward; see `gathered_products`.
        generator: for the initial weights, in the same state on all ranks; None: seeded by the
            group's first rank.
        device, dtype: of the parameters.
        group: ranks that the layer is divided among; None: all ranks.

    Raises:
        ValueError: the ranks do not divide the output features, this rank is not in the group, or
            options that do not go together.
    """

    split_dims: ClassVar[dict[str, int | None]] = {"weight": 0, "bias": 0}
    _divided = "output features"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        gather_output: bool = False,
        sequence_parallel: bool = False,
        input_is_copied: bool = False,
        overlap: bool = False,
        gather_again: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        if sequence_parallel and gather_output:
            raise ValueError("a sequence-parallel model has no place for whole outputs: leave out gather_output")
        if overlap and (sequence_parallel or input_is_copied):
            raise ValueError("overlap is for the all-reduce of f: leave out sequence_parallel and input_is_copied")
        if gather_again and (not sequence_parallel or input_is_copied):
            raise ValueError("gather_again is for tokens that this layer gathers: it needs sequence_parallel alone")
        super().__init__(in_features, out_features, bias, generator=generator, device=device, dtype=dtype, group=group)
        self.gather_output, self.sequence_parallel = gather_output, sequence_parallel
        self.input_is_copied, self.overlap, self.gather_again = input_is_copied, overlap, gather_again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, in) -> (B, T, out/t), or (B, T, out) with `gather_output`; all ranks of the group call it."""
        require_own_parameters(self)
        if x.shape[-1] != self.in_features:
            raise ValueError(
                f"each rank takes all {self.in_features} input features; got {x.shape[-1]}. A column-parallel layer "
                "follows one with whole outputs: for an input in parts there is RowParallelLinear"
            )
        weight, bias, group = self.weight, self.bias, self.group
        if self.overlap:
            (y,) = overlapped_products(x, (weight, bias), group=group)  # (B, T, out/t)
        elif self.gather_again:
            (y,) = gathered_products(x, (weight, bias), group=group)  # (B, T, out/t)
        elif self.input_is_copied:
            y = self.product(x, weight, bias)  # (B, T, out/t)
        elif self.sequence_parallel:
            whole = gather_from_sequence_parallel_region(x, SEQUENCE_DIM, group=group)  # (B, T, in)
            y = self.product(whole, weight, bias)  # (B, T, out/t)
        else:
            y = self.product(copy_to_tensor_parallel_region(x, group=group), weight, bias)  # f; (B, T, out/t)
        return gather_from_tensor_parallel_region(y, group=self.group) if self.gather_output else y


class RowParallelLinear(_ParallelLinear):
    """`page_linear.RowLinear` with initial weights, sequence parallelism and inputs that are whole.

    A linear layer with 1/t of the input features on each rank: (B, T, in/t) -> (B, T, out). The bias
    is whole on every rank and added once, after the sum: before it, it would be in the sum t times.

    **Communication**: forward one all-reduce of the partial sums (g): of b s out elements, each rank
    sends 2 b s out (t-1)/t; backward none. With `sequence_parallel` one reduce-scatter forward and
    one all-gather backward: together the same bytes. With `input_is_parallel=False` also one
    all-gather of b s in elements backward. One broadcast of 8 bytes when weights are drawn without a
    generator.
    **Memory**: 1/t of the weight, and the bias. Kept for backward: 1/t of the input.

    Args:
        in_features: of the whole layer; t divides it.
        out_features: of the whole layer.
        bias: add a bias; it is replicated. With `sequence_parallel` each rank adds it to its own
            tokens, so its gradient is a partial sum: it is marked, see `mark_sequence_parallel`.
        input_is_parallel: the input has this rank's features, as a column-parallel layer leaves them.
            False: it is whole, and the layer takes its part.
        sequence_parallel: return this rank's tokens only, (B, T/t, out).
        generator: for the initial weights, in the same state on all ranks; None: seeded by the
            group's first rank.
        device, dtype: of the parameters.
        group: ranks that the layer is divided among; None: all ranks.

    Raises:
        ValueError: the ranks do not divide the input features, or this rank is not in the group.
    """

    split_dims: ClassVar[dict[str, int | None]] = {"weight": 1, "bias": None}
    _divided = "input features"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        input_is_parallel: bool = True,
        sequence_parallel: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, generator=generator, device=device, dtype=dtype, group=group)
        self.input_is_parallel, self.sequence_parallel = input_is_parallel, sequence_parallel
        if sequence_parallel and bias:
            mark_sequence_parallel(self, "bias", group=group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, in/t) -> (B, T, out); all ranks of the group call it."""
        if not self.input_is_parallel:
            x = scatter_to_tensor_parallel_region(x, group=self.group)  # (B, T, in/t)
        require_own_parameters(self)
        if x.shape[-1] != self.weight.shape[1]:
            raise ValueError(
                f"each of {self.num_ranks} ranks takes {self.weight.shape[1]} of {self.in_features} input features; "
                f"got {x.shape[-1]}. For an input that is whole pass input_is_parallel=False"
            )
        partial = self.product(x, self.weight, None)  # (B, T, out) {U_t}
        if self.sequence_parallel:
            y = reduce_scatter_to_sequence_parallel_region(partial, SEQUENCE_DIM, group=self.group)  # (B, T/t, out)
        else:
            y = reduce_from_tensor_parallel_region(partial, group=self.group)  # g: (B, T, out)
        return y if self.bias is None else y + self.bias  # once: before the sum it would be added t times
