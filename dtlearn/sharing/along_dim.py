"""Collectives along any dim of a tensor. They return new tensors, and autograd does not see them.

A collective sees memory, not dims: it puts the ranks' blocks one behind the other. Along dim 0 that is the whole
tensor; along another dim the blocks are moved once more, on the rank itself. Two of them can also be started and
waited for later.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from .flat_collectives import all_gather_single, reduce_scatter_single
from .shards import divide, rank_and_size


def all_reduce(tensor: torch.Tensor, *, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The sum of all ranks' tensors, on every rank.

    **Communication**: one all-reduce; of n bytes, each rank sends 2n (t-1)/t.
    **Memory**: a copy of the tensor: the caller's stays as it is, since somebody else may hold it.

    Args:
        tensor: of the same shape on all ranks.
        group: None: all ranks.
    """
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def all_gather(tensor: torch.Tensor, dim: int, *, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The tensors of all ranks one after the other along a dim, on every rank.

    **Communication**: one all-gather; of n bytes in the result, each rank sends n (t-1)/t.
    **Memory**: the result; twice that for a moment if `dim` is not 0.

    Args:
        tensor: of the same shape on all ranks.
        dim: along which they are joined.
        group: None: all ranks.
    """
    return start_all_gather(tensor, dim, group=group)()


def reduce_scatter(tensor: torch.Tensor, dim: int, *, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """This rank's part, along a dim, of the sum of all ranks' tensors.

    **Communication**: one reduce-scatter; of n bytes in the tensor, each rank sends n (t-1)/t.
    **Memory**: the part; and a copy of the tensor for a moment if `dim` is not 0.

    Args:
        tensor: of the same shape on all ranks; the number of ranks divides its dim.
        dim: along which the sum is divided.
        group: None: all ranks.
    """
    return start_reduce_scatter(tensor, dim, group=group)()


def all_to_all(
    tensor: torch.Tensor, split_dim: int, concat_dim: int, *, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Part j along `split_dim` goes to rank j; the parts that come are joined along `concat_dim`, in the ranks' order.

    A tensor that was sharded along `concat_dim` is sharded along `split_dim` afterwards: `A[I_t, J]` -> `A[I, J_t]`.

    **Communication**: one all-to-all; of n bytes in the tensor, each rank sends n (t-1)/t.
    **Memory**: the result; twice that for a moment, and a copy of the tensor if `split_dim` is not 0.

    Args:
        tensor: of the same shape on all ranks; the number of ranks divides its `split_dim`.
        split_dim: along which it is divided.
        concat_dim: along which the parts are joined.
        group: None: all ranks.

    Raises:
        ValueError: the ranks do not divide the dim.
    """
    num_ranks = dist.get_world_size(group)
    divide(tensor.shape[split_dim], num_ranks, f"elements of dim {split_dim % tensor.ndim}")
    blocks = torch.stack(tensor.chunk(num_ranks, split_dim))  # (t, ...): block j for rank j
    received = torch.empty_like(blocks)  # (t, ...): block j from rank j
    dist.all_to_all_single(received, blocks, group=group)
    return torch.cat(received.unbind(), concat_dim)


def unshard(shard: torch.Tensor, dim: int, *, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The whole tensor, on every rank, of the shards of all: `A[I_t, J]` -> `A[I, J]` for dim 0.

    All ranks of the group call it. An `all_gather` that gives a group of one rank its copy without a collective.

    **Communication**: one all-gather; of n bytes in the whole, each rank sends n (t-1)/t.
    **Memory**: the whole tensor, twice for a moment if `dim` is not 0.

    Args:
        shard: this rank's; all have the same shape.
        dim: along which it is divided.
        group: None: all ranks.
    """
    _, num_ranks = rank_and_size(group)
    return all_gather(shard.detach(), dim, group=group) if num_ranks > 1 else shard.detach().clone()


def start_all_gather(
    tensor: torch.Tensor, dim: int, *, group: dist.ProcessGroup | None = None
) -> Callable[[], torch.Tensor]:
    """Begin an `all_gather`, and go on: what is returned waits for its end, and returns the result."""
    blocks = tensor.new_empty(dist.get_world_size(group), *tensor.shape)  # (t, ...): one block of each rank
    work = all_gather_single(blocks.flatten(), tensor.flatten(), group=group, async_op=True)

    def end() -> torch.Tensor:
        work.wait()
        return blocks.flatten(0, 1) if dim % tensor.ndim == 0 else torch.cat(blocks.unbind(), dim)

    return end


def start_reduce_scatter(
    tensor: torch.Tensor, dim: int, *, group: dist.ProcessGroup | None = None
) -> Callable[[], torch.Tensor]:
    """Begin a `reduce_scatter`, and go on: what is returned waits for its end, and returns the result."""
    parts = tensor.chunk(dist.get_world_size(group), dim)
    blocks = tensor.contiguous() if dim % tensor.ndim == 0 else torch.stack(parts)  # the parts one after the other
    part = torch.empty_like(parts[0], memory_format=torch.contiguous_format)
    work = reduce_scatter_single(part.flatten(), blocks.flatten(), group=group, async_op=True)

    def end() -> torch.Tensor:
        work.wait()
        return part

    return end
