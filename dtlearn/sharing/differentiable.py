"""Collectives that autograd sees: each has another one of this file as its backward pass.

Where ranks compute a region of a model in parts, `to` leads into the divided region and `from` out of it:

    function                               forward          backward          Megatron's
    copy_to                                nothing          all-reduce        f
    reduce_from                            all-reduce       nothing           g
    scatter_to                             own part         all-gather
    gather_from                            all-gather       own part
    gather_from(partial_gradients=True)    all-gather       reduce-scatter    g
    reduce_scatter_to                      reduce-scatter   all-gather        g-bar
    all_to_all                             all-to-all       all-to-all, with the dims exchanged

In a group of one rank none of them communicates. All ranks of the group call them, in the same order, and all of them
run the backward pass.

Which backward is right depends on what follows, not on what is sent. If all ranks compute the same from the result,
each has the whole gradient already, and a sum over the ranks would be t times too large. If each computes its own part
from it, each has one term of the gradient, `{U_t}`: a partial one, and the sum is missing.

Shapes: t ranks; x of any shape.

Sources: Megatron-LM, `core/tensor_parallel/mappings.py`; Shoeybi et al., "Megatron-LM", 1909.08053, section 3, figure 3
(f and g); Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2205.05198, section
4.2.2, figure 5 (g and g-bar); all-to-all: Jacobs et al., "DeepSpeed Ulysses", 2309.14509, section 3.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from . import along_dim
from .shards import divide, rank_and_size, shard_of


def copy_to(x: Tensor, *, group: dist.ProcessGroup | None = None) -> Tensor:
    """f: `x` as it is; in backward the sum of all ranks' gradients.

    Every rank uses all of `x` for its own part of what follows, so each has one term of the gradient.

    **Communication**: backward: one all-reduce; of n bytes in `x`, each rank sends 2n (t-1)/t.
    **Memory**: backward: the gradient once more.

    Args:
        x: the same on all ranks.
        group: None: all ranks.
    """
    out: Tensor = Copy.apply(x, group)
    return out


def reduce_from(x: Tensor, *, group: dist.ProcessGroup | None = None) -> Tensor:
    """g: the sum of all ranks' `x`; in backward the gradient as it is.

    What follows is computed by all ranks alike, so each has the whole gradient of the sum, which is the gradient of
    each term.

    **Communication**: one all-reduce; of n bytes in `x`, each rank sends 2n (t-1)/t.
    **Memory**: the sum, beside `x`.

    Args:
        x: this rank's partial sum, `{U_t}`.
        group: None: all ranks.
    """
    out: Tensor = Reduce.apply(x, group)
    return out


def scatter_to(x: Tensor, dim: int, *, group: dist.ProcessGroup | None = None) -> Tensor:
    """This rank's part of `x` along a dim; in backward the gradients of all parts, one after the other.

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


def gather_from(
    x: Tensor, dim: int, *, partial_gradients: bool = False, group: dist.ProcessGroup | None = None
) -> Tensor:
    """The parts of all ranks, one after the other along a dim; in backward this rank's part of the gradient.

    **Communication**: one all-gather; of n bytes in the result, each rank sends n (t-1)/t. With `partial_gradients`
    one reduce-scatter in backward, of as many bytes.
    **Memory**: the result.

    Args:
        x: this rank's part.
        dim: along which the whole is divided.
        partial_gradients: what follows differs by rank, so each has a term `{U_t}` of the gradient: backward adds
            them up, and keeps this rank's part. False: all ranks compute the same from here.
        group: None: all ranks.
    """
    out: Tensor = _Gather.apply(x, dim, partial_gradients, group)
    return out


def reduce_scatter_to(x: Tensor, dim: int, *, group: dist.ProcessGroup | None = None) -> Tensor:
    """This rank's part, along a dim, of the sum of all ranks' `x`; in backward the gradients of all parts.

    **Communication**: one reduce-scatter, and in backward one all-gather; of n bytes in `x`, each rank sends
    n (t-1)/t in either: together as much as the all-reduce of g.
    **Memory**: the part; for a moment `x` once more.

    Args:
        x: this rank's partial sum, `{U_t}`.
        dim: along which the sum is divided.
        group: None: all ranks.

    Raises:
        ValueError: t does not divide the dim.
    """
    out: Tensor = _ReduceScatter.apply(x, dim, group)
    return out


def all_to_all(x: Tensor, split_dim: int, concat_dim: int, *, group: dist.ProcessGroup | None = None) -> Tensor:
    """`along_dim.all_to_all`; in backward the same with the dims exchanged, so that each gradient goes back.

    **Communication**: one all-to-all, and one in backward; of n bytes in `x`, each rank sends n (t-1)/t in either.
    **Memory**: the result; twice that for a moment.

    Args:
        x: of the same shape on all ranks.
        split_dim: along which `x` is divided: part j goes to rank j.
        concat_dim: along which the parts that come are joined.
        group: None: all ranks.

    Raises:
        ValueError: t does not divide `split_dim`.
    """
    out: Tensor = _AllToAll.apply(x, split_dim, concat_dim, group)
    return out


# Each backward calls the conjugate function, so that a gradient can be differentiated once more.


class Copy(torch.autograd.Function):
    """f, for autograd; see `copy_to`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        """Nothing is sent."""
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """One all-reduce: the sum of all ranks' gradients."""
        return reduce_from(gradient, group=ctx.group), None


class Reduce(torch.autograd.Function):
    """g, for autograd; see `reduce_from`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        """One all-reduce."""
        ctx.group = group
        _, num_ranks = rank_and_size(group)
        return along_dim.all_reduce(x, group=group) if num_ranks > 1 else x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Nothing is sent."""
        return copy_to(gradient, group=ctx.group), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: dist.ProcessGroup | None) -> Tensor:
        ctx.dim, ctx.group = dim, group
        rank, num_ranks = rank_and_size(group)
        return shard_of(x, dim, num_ranks, rank) if num_ranks > 1 else x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gather_from(gradient, ctx.dim, group=ctx.group), None, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, partial_gradients: bool, group: dist.ProcessGroup | None) -> Tensor:
        ctx.dim, ctx.partial_gradients, ctx.group = dim, partial_gradients, group
        _, num_ranks = rank_and_size(group)
        return along_dim.all_gather(x, dim, group=group) if num_ranks > 1 else x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        conjugate = reduce_scatter_to if ctx.partial_gradients else scatter_to
        return conjugate(gradient, ctx.dim, group=ctx.group), None, None, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: dist.ProcessGroup | None) -> Tensor:
        ctx.dim, ctx.group = dim, group
        _, num_ranks = rank_and_size(group)
        divide(x.shape[dim], num_ranks, f"elements of dim {dim % x.ndim}")
        return along_dim.reduce_scatter(x, dim, group=group) if num_ranks > 1 else x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gather_from(gradient, ctx.dim, partial_gradients=True, group=ctx.group), None, None


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, split_dim: int, concat_dim: int, group: dist.ProcessGroup | None) -> Tensor:
        ctx.split_dim, ctx.concat_dim, ctx.group = split_dim, concat_dim, group
        _, num_ranks = rank_and_size(group)
        return along_dim.all_to_all(x, split_dim, concat_dim, group=group) if num_ranks > 1 else x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return all_to_all(gradient, ctx.concat_dim, ctx.split_dim, group=ctx.group), None, None, None
