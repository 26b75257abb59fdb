"""Even shards of a tensor along one dim, in the order of the ranks. Nothing here is sent.

An *axis* is a direction of the mesh of ranks, a *dim* a dimension of a tensor. A tensor is sharded over an axis along
one of its dims; `t` is the number of ranks on the axis. Shards are even: a collective sends as much for every rank, and
a layer whose ranks had unequal work would run at the speed of the slowest.
"""

from __future__ import annotations

import torch
import torch.distributed as dist


def divide(size: int, parts: int, what: str) -> int:
    """`size / parts`, which must be a whole number.

    **Communication** and **Memory**: none.

    Args:
        size: what is divided.
        parts: ranks that it is divided among.
        what: what the size counts, for the error, such as "heads" or "output features".

    Raises:
        ValueError: `parts` does not divide `size`; says what divides what, and which numbers would do.
    """
    if parts < 1:
        raise ValueError(f"{what} are divided among at least one rank; got {parts}")
    if size % parts:
        divisors = [str(number) for number in range(1, min(size, 64) + 1) if size % number == 0]
        raise ValueError(
            f"{size} {what} cannot be divided among {parts} ranks: {size} = {size // parts} * {parts} + {size % parts}"
            f". Choose a multiple of {parts}, or a group of {' or '.join(divisors)} ranks"
        )
    return size // parts


def shard_bounds(size: int, num_shards: int, index: int, what: str = "elements") -> tuple[int, int]:
    """Where a shard begins and ends: with 12 elements in 3 shards, shard 1 is `(4, 8)`.

    **Communication** and **Memory**: none.

    Args:
        size: elements along the dim.
        num_shards: as many as ranks.
        index: of the shard, from 0: the rank in the group.
        what: as for `divide`.

    Raises:
        ValueError: `num_shards` does not divide `size`, or there is no such shard.
    """
    length = divide(size, num_shards, what)
    if not 0 <= index < num_shards:
        raise ValueError(f"{num_shards} parts are numbered 0 to {num_shards - 1}; got part {index}")
    return index * length, (index + 1) * length


def rank_and_size(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """This rank in the group, and the number of ranks there.

    **Communication** and **Memory**: none.

    Args:
        group: None: all ranks.

    Raises:
        ValueError: this rank is not in the group.
    """
    rank, num_ranks = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError(f"rank {dist.get_rank()} is not in the group that it was given")
    return rank, num_ranks


def shard_of(
    tensor: torch.Tensor,
    dim: int,
    num_shards: int,
    index: int,
    what: str = "",
) -> torch.Tensor:
    """One shard of a tensor, without a group: for files, and for ranks that are not there.

    **Communication**: none.
    **Memory**: the shard, `1 / num_shards` of the tensor; the result does not refer to the tensor.

    Args:
        tensor: the whole, of any shape.
        dim: along which it is divided.
        num_shards: into how many.
        index: of the shard, from 0.
        what: as for `divide`; "": "elements of dim 1".

    Raises:
        ValueError: `num_shards` does not divide the dim, or there is no such shard.
    """
    what = what or f"elements of dim {dim % tensor.ndim}"
    start, stop = shard_bounds(tensor.shape[dim], num_shards, index, what)
    view = tensor.detach().narrow(dim, start, stop - start)
    # A view would keep the whole tensor alive, and so would the graph of a parameter.
    return view.clone(memory_format=torch.contiguous_format)


def shard(tensor: torch.Tensor, dim: int, *, group: dist.ProcessGroup | None = None, what: str = "") -> torch.Tensor:
    """This rank's shard of a tensor that every rank has: `A[I, J]` -> `A[I_t, J]` for dim 0.

    **Communication**: none.
    **Memory**: the shard, 1/t of the tensor; the result does not refer to the tensor.

    Args:
        tensor: the whole, the same on all ranks.
        dim: along which it is divided.
        group: None: all ranks.
        what: as for `divide`; "": "elements of dim 1".

    Raises:
        ValueError: the ranks do not divide the dim, or this rank is not in the group.
    """
    rank, num_ranks = rank_and_size(group)
    return shard_of(tensor, dim, num_ranks, rank, what)
