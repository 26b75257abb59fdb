"""Collectives along any dim of a tensor. They return new tensors.

A collective sees memory, not dims: it puts the ranks' blocks one behind the other. Along dim 0 that is the whole
tensor; along another dim the blocks are moved once more, on the rank itself. Two of them can also be started and
waited for later.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from .flat_collectives import all_gather_single, reduce_scatter_single


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
