"""Sent in 16 bits, added in 32: the bytes of a 16-bit all-reduce, and one rounding however many ranks there are.

A ring cannot do that: what it sends on is a partial sum, which 16 bits round at every rank. Here nothing but the ranks'
own gradients and the finished mean is sent. Each rank gets one shard of everybody's gradients (all-to-all), adds it up
in float32, rounds the mean once, and gives it to all (all-gather).

Reference: Megatron-LM, `megatron/core/distributed/reduce_scatter_with_fp32_accumulation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from .average import pack, unpack


def average_with_fp32_sum(
    gradients: Sequence[torch.Tensor],
    *,
    in_dtype: torch.dtype = torch.bfloat16,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Replace each gradient by its mean over the ranks: sent in `in_dtype`, added in float32.

    **Communication**: an all-to-all and an all-gather of n elements of `in_dtype`, of which each rank sends (N-1)/N
    twice: as many bytes as a ring's all-reduce, in two steps. n is padded to a multiple of N.
    **Memory**: two buffers of n elements of `in_dtype`; a shard of n/N elements in float32 and in `in_dtype`.

    Args:
        gradients: the same shapes in the same order on every rank.
        in_dtype: of what is sent.
        group: default: the world.

    Raises:
        ValueError: as `average` does.
    """
    size = dist.get_world_size(group)
    buffer = pack(gradients, in_dtype, multiple_of=size)  # (n,): a shard for each rank, one after the other
    shards = torch.empty_like(buffer)  # (n,): this rank's shard of each rank's gradients
    dist.all_to_all_single(shards, buffer, group=group)
    mean = shards.view(size, -1).sum(0, dtype=torch.float32).div_(size)  # (n/N,)
    dist.all_gather_into_tensor(buffer, mean.to(in_dtype), group=group)
    unpack(buffer, gradients)
