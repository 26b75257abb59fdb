"""Which part of a tensor a rank has: even parts, in the order of the ranks.

An *axis* is a direction of the mesh of ranks, a *dim* a dimension of a tensor. A tensor is divided over an axis along
one of its dims; `t` is the number of ranks on the axis. Parts are even: a collective sends as much for every rank, and
a layer whose ranks had unequal work would run at the speed of the slowest.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from dtlearn.sharing.along_dim import all_gather


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


def shard_bounds(size: int, parts: int, part: int, what: str = "elements") -> tuple[int, int]:
    """Where a part begins and ends: with 12 elements in 3 parts, part 1 is `(4, 8)`.

    **Communication** and **Memory**: none.

    Args:
        size: elements along the dim.
        parts: number of ranks.
        part: rank in the group.
        what: as for `divide`.

    Raises:
        ValueError: `parts` does not divide `size`, or there is no such part.
    """
    length = divide(size, parts, what)
    if not 0 <= part < parts:
        raise ValueError(f"{parts} parts are numbered 0 to {parts - 1}; got part {part}")
    return part * length, (part + 1) * length


def place_in(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """This rank's number in the group, and the number of ranks there.

    **Communication** and **Memory**: none.

    Args:
        group: None: all ranks.

    Raises:
        ValueError: this rank is not in the group.
    """
    rank, num_ranks = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError(f"rank {dist.get_rank()} is not in the tensor-parallel group that it was given")
    return rank, num_ranks


def part_of(tensor: torch.Tensor, dim: int, parts: int, part: int, what: str = "") -> torch.Tensor:
    """One part of a tensor, without a group: for files, and for ranks that are not there.

    **Communication**: none.
    **Memory**: the part, `1 / parts` of the tensor; the result does not refer to the tensor.

    Args:
        tensor: the whole, of any shape.
        dim: along which it is divided.
        parts: number of parts.
        part: which one, from 0.
        what: as for `divide`; "": "elements of dim 1".

    Raises:
        ValueError: `parts` does not divide the dim, or there is no such part.
    """
    what = what or f"elements of dim {dim % tensor.ndim}"
    start, stop = shard_bounds(tensor.shape[dim], parts, part, what)
    view = tensor.detach().narrow(dim, start, stop - start)
    # A view would keep the whole tensor alive, and so would the graph of a parameter.
    return view.clone(memory_format=torch.contiguous_format)


def shard(tensor: torch.Tensor, dim: int, *, group: dist.ProcessGroup | None = None, what: str = "") -> torch.Tensor:
    """This rank's part of a tensor that every rank has: `A[I, J]` -> `A[I_t, J]` for dim 0.

    **Communication**: none.
    **Memory**: the part, 1/t of the tensor; the result does not refer to the tensor.

    Args:
        tensor: the whole, the same on all ranks.
        dim: along which it is divided.
        group: None: all ranks.
        what: as for `divide`; "": "elements of dim 1".

    Raises:
        ValueError: the ranks do not divide the dim, or this rank is not in the group.
    """
    rank, num_ranks = place_in(group)
    return part_of(tensor, dim, num_ranks, rank, what)


def unshard(local: torch.Tensor, dim: int, *, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The whole tensor, on every rank, of the parts of all: `A[I_t, J]` -> `A[I, J]` for dim 0.

    All ranks of the group call it. Autograd does not see it: for that there are the operators of `mappings`.

    **Communication**: one all-gather; of n bytes in the whole, each rank sends n (t-1)/t.
    **Memory**: the whole tensor, twice for a moment if `dim` is not 0.

    Args:
        local: this rank's part; all have the same shape.
        dim: along which it is divided.
        group: None: all ranks.
    """
    _, num_ranks = place_in(group)
    return all_gather(local.detach(), dim, group=group) if num_ranks > 1 else local.detach().clone()
