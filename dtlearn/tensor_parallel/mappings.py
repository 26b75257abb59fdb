"""The conjugate operators: what is communicated where a region of the model begins or ends, forward and backward.

A *tensor-parallel region* is computed in parts, by features. A *sequence-parallel region* is computed in parts, by
tokens. The backward pass of an operator is another operator of this file, with the words turned round:

    operator                                     forward          backward          paper
    copy_to_tensor_parallel_region               nothing          all-reduce        f
    reduce_from_tensor_parallel_region           all-reduce       nothing           g
    scatter_to_tensor_parallel_region            own part         all-gather
    gather_from_tensor_parallel_region           all-gather       own part
    scatter_to_sequence_parallel_region          own part         all-gather
    gather_from_sequence_parallel_region         all-gather       reduce-scatter    g (of the second paper)
    reduce_scatter_to_sequence_parallel_region   reduce-scatter   all-gather        g-bar

In a group of one rank none of them communicates. All ranks of the group call them, in the same order.

Shapes in this file: t ranks; x (B, T, C), or any other. The names are those of Megatron-LM, which says
`tensor_model_parallel` for `tensor_parallel`, and whose tensors are (T, B, C), so that the sequence is dim 0 there.

Sources: `core/tensor_parallel/mappings.py`; Shoeybi et al., "Megatron-LM", 1909.08053, section 3, figure 3 (f and g);
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2205.05198, section 4.2.2, figure
5.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dtlearn.sharing.along_dim import all_gather, all_reduce, reduce_scatter

from .sharding import divide, part_of, place_in

Group = dist.ProcessGroup | None


def copy_to_tensor_parallel_region(x: Tensor, *, group: Group = None) -> Tensor:
    """f: `x` as it is; in backward the sum of all ranks' gradients.

    Every rank uses all of `x` for its own part of the features, so each has one term of the gradient.

    **Communication**: backward: one all-reduce; of n bytes in `x`, each rank sends 2n (t-1)/t.
    **Memory**: backward: the gradient once more.

    Args:
        x: the same on all ranks.
        group: None: all ranks.
    """
    out: Tensor = Copy.apply(x, group)
    return out


def reduce_from_tensor_parallel_region(x: Tensor, *, group: Group = None) -> Tensor:
    """g: the sum of all ranks' `x`; in backward the gradient as it is.

    What follows is computed by all ranks alike, so each has the whole gradient of the sum, which is
    the gradient of each term.

    **Communication**: one all-reduce; of n bytes in `x`, each rank sends 2n (t-1)/t.
    **Memory**: the sum, beside `x`.

    Args:
        x: this rank's partial sum, `{U_t}`.
        group: None: all ranks.
    """
    out: Tensor = Reduce.apply(x, group)
    return out


def scatter_to_tensor_parallel_region(x: Tensor, dim: int = -1, *, group: Group = None) -> Tensor:
    """This rank's part of `x`, (B, T, C) -> (B, T, C/t); in backward the parts of all, one after the other.

    **Communication**: backward: one all-gather; of n bytes in `x`, each rank sends n (t-1)/t.
    **Memory**: the part.

    Args:
        x: the same on all ranks.
        dim: along which it is divided.
        group: None: all ranks.

    Raises:
        ValueError: t does not divide the dim.
    """
    out: Tensor = _Scatter.apply(x, dim, group)
    return out


def gather_from_tensor_parallel_region(x: Tensor, dim: int = -1, *, group: Group = None) -> Tensor:
    """The parts of all ranks, (B, T, C/t) -> (B, T, C); in backward this rank's part of the gradient.

    What follows is computed by all ranks alike. Where it differs by rank, the gradients must be
    added up, as `gather_from_sequence_parallel_region` does.

    **Communication**: one all-gather; of n bytes in the result, each rank sends n (t-1)/t.
    **Memory**: the result.

    Args:
        x: this rank's part.
        dim: along which it is divided.
        group: None: all ranks.
    """
    out: Tensor = _Gather.apply(x, dim, group)
    return out


def scatter_to_sequence_parallel_region(x: Tensor, dim: int = 1, *, group: Group = None) -> Tensor:
    """This rank's tokens, (B, T, C) -> (B, T/t, C); in backward the gradients of all tokens.

    **Communication**: backward: one all-gather; of n bytes in `x`, each rank sends n (t-1)/t.
    **Memory**: the part.

    Args:
        x: the same on all ranks.
        dim: of the sequence.
        group: None: all ranks.

    Raises:
        ValueError: t does not divide the dim.
    """
    out: Tensor = _Scatter.apply(x, dim, group)
    return out


def gather_from_sequence_parallel_region(
    x: Tensor, dim: int = 1, tensor_parallel_output_grad: bool = True, *, group: Group = None
) -> Tensor:
    """All tokens, (B, T/t, C) -> (B, T, C); in backward the summed gradients of this rank's tokens.

    **Communication**: one all-gather, and in backward one reduce-scatter; of n bytes in the
    result, each rank sends n (t-1)/t in either: together as much as the all-reduce of f.
    **Memory**: the result; backward: the gradient once more.

    Args:
        x: this rank's tokens.
        dim: of the sequence.
        tensor_parallel_output_grad: what follows is a tensor-parallel region, where each rank has
            a part of the gradient. False: all ranks compute the same from here, and each takes its
            tokens' gradient as it is; a sum would be t times too large.
        group: None: all ranks.
    """
    if not tensor_parallel_output_grad:
        return gather_from_tensor_parallel_region(x, dim, group=group)
    out: Tensor = _GatherTokens.apply(x, dim, group)
    return out


def reduce_scatter_to_sequence_parallel_region(x: Tensor, dim: int = 1, *, group: Group = None) -> Tensor:
    """Of the sum of all `x` this rank's tokens, (B, T, C) -> (B, T/t, C); in backward all gradients.

    **Communication**: one reduce-scatter, and in backward one all-gather; of n bytes in `x`, each
    rank sends n (t-1)/t in either: together as much as the all-reduce of g.
    **Memory**: the part; for a moment `x` once more.

    Args:
        x: this rank's partial sum, `{U_t}`.
        dim: of the sequence.
        group: None: all ranks.

    Raises:
        ValueError: t does not divide the dim.
    """
    out: Tensor = _ReduceScatter.apply(x, dim, group)
    return out


# Each backward calls the conjugate operator, so that a gradient can be differentiated once more.


class Copy(torch.autograd.Function):
    """f, for autograd; see `copy_to_tensor_parallel_region`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        """Nothing is sent."""
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """One all-reduce: the sum of all ranks' gradients."""
        return reduce_from_tensor_parallel_region(gradient, group=ctx.group), None


class Reduce(torch.autograd.Function):
    """g, for autograd; see `reduce_from_tensor_parallel_region`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        """One all-reduce."""
        ctx.group = group
        _, num_ranks = place_in(group)
        return all_reduce(x, group=group) if num_ranks > 1 else x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Nothing is sent."""
        return copy_to_tensor_parallel_region(gradient, group=ctx.group), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: Group) -> Tensor:
        ctx.dim, ctx.group = dim, group
        rank, num_ranks = place_in(group)
        return part_of(x, dim, num_ranks, rank) if num_ranks > 1 else x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gather_from_tensor_parallel_region(gradient, ctx.dim, group=ctx.group), None, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: Group) -> Tensor:
        ctx.dim, ctx.group = dim, group
        _, num_ranks = place_in(group)
        return all_gather(x, dim, group=group) if num_ranks > 1 else x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return scatter_to_tensor_parallel_region(gradient, ctx.dim, group=ctx.group), None, None


class _GatherTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: Group) -> Tensor:
        ctx.dim, ctx.group = dim, group
        _, num_ranks = place_in(group)
        return all_gather(x, dim, group=group) if num_ranks > 1 else x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return reduce_scatter_to_sequence_parallel_region(gradient, ctx.dim, group=ctx.group), None, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: Group) -> Tensor:
        ctx.dim, ctx.group = dim, group
        _, num_ranks = place_in(group)
        divide(x.shape[dim], num_ranks, f"elements of dim {dim % x.ndim}")
        return reduce_scatter(x, dim, group=group) if num_ranks > 1 else x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gather_from_sequence_parallel_region(gradient, ctx.dim, group=ctx.group), None, None
