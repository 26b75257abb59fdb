"""The two collectives of flat tensors, under the name that this version of torch has for them.

torch 2.13 calls them `all_gather_single` and `reduce_scatter_single`; before, they were `all_gather_into_tensor` and
`reduce_scatter_tensor`, and in 2.13 those names give a warning.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def all_gather_single(
    full: torch.Tensor, shard: torch.Tensor, *, group: dist.ProcessGroup | None = None, async_op: bool = False
) -> Any:
    """Put the shards of all ranks one after the other.

    **Communication**: one all-gather; with n bytes in `full`, each rank sends n (N-1)/N.

    Args:
        full: (N * k,), written.
        shard: (k,), this rank's; it may be its part of `full`.
        async_op: return a Work, to be waited for.
    """
    call = dist.all_gather_single if hasattr(dist, "all_gather_single") else dist.all_gather_into_tensor
    return call(full, shard, group=group, async_op=async_op)


def reduce_scatter_single(
    shard: torch.Tensor, full: torch.Tensor, *, group: dist.ProcessGroup | None = None, async_op: bool = False
) -> Any:
    """Add up the tensors of all ranks, and keep this rank's shard of the sum.

    **Communication**: one reduce-scatter; with n bytes in `full`, each rank sends n (N-1)/N.

    Args:
        shard: (k,), written.
        full: (N * k,).
        async_op: return a Work, to be waited for.
    """
    call = dist.reduce_scatter_single if hasattr(dist, "reduce_scatter_single") else dist.reduce_scatter_tensor
    return call(shard, full, group=group, async_op=async_op)
