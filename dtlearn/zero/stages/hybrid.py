"""Hybrid sharding: stage 3 inside groups of ranks, and copies of the shards over the groups.

    shard groups are rows, replicate groups are columns:      rank 0 | rank 1
                                                              rank 2 | rank 3

Parameters are gathered within a row, usually the ranks of one machine, over its fast links. Between machines only the
gradients of a shard are sent, 1/S of all. The price is memory: a row has the whole state, S ranks in place of all N.

Sources: MiCS, 2205.00119; FSDP, 2304.11277, section 3.2; `fully_shard` on a mesh of two dimensions (HSDP).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.wrapping import broadcast_tensors, require_same_model

from ..partition.partition import Bucket
from .sharded_bucket import Reduction, ShardedBucket
from .zero3 import FullyShardedDataParallel


class HybridShardedDataParallel(FullyShardedDataParallel):
    """`FullyShardedDataParallel` over the ranks of a shard group, and a mean over those with the same shard.

    **Communication** (n bytes of parameters, padded; S ranks in a shard group, R in a replicate group): what
    `FullyShardedDataParallel` sends, within the shard group: 3n (S-1)/S from each rank in a step. And an all-reduce of
    the n/S bytes of a rank's gradients in the replicate group: 2 n/S (R-1)/R, a call for each bucket, after its
    reduce-scatter and while backward goes on.
    **Memory**: n/S of parameters, of gradients and of each state; while a pass runs, as `FullyShardedDataParallel`.

    Clipping takes the norm over the shard group: the ranks of a replicate group have the same gradients.

    Args:
        module: the model; the same on all ranks, on its device.
        shard_group: ranks that divide the parameters: of a `torch.distributed.device_mesh.init_device_mesh(device,
            (R, S), mesh_dim_names=("replicate", "shard"))` the group of its row, `mesh.get_group("shard")`.
        replicate_group: ranks with the same shard: the group of its column, `mesh.get_group("replicate")`.
        options: as of `FullyShardedDataParallel`: units, reshard_after_forward, prefetch, policy, offload.

    Raises:
        ValueError: the groups share more ranks than this one; and as `FullyShardedDataParallel`.
        RuntimeError: the models of the ranks differ.
    """

    def __init__(
        self, module: nn.Module, *, shard_group: dist.ProcessGroup, replicate_group: dist.ProcessGroup, **options: Any
    ) -> None:
        common = set(dist.get_process_group_ranks(shard_group)) & set(dist.get_process_group_ranks(replicate_group))
        if common != {dist.get_rank()}:
            raise ValueError(
                f"the shard group and the replicate group of rank {dist.get_rank()} have to share this rank and no "
                f"other; they share {sorted(common)}"
            )
        require_same_model(module, group=replicate_group)
        self._replicate_group = replicate_group  # first: the buckets are made with it
        super().__init__(module, group=shard_group, **options)
        broadcast_tensors(list(module.buffers()), group=replicate_group)

    def _make_bucket(self, bucket: Bucket, parameters: Sequence[nn.Parameter], **options: Any) -> ShardedBucket:
        return ReplicatedBucket(bucket, parameters, replicate_group=self._replicate_group, **options)


class ReplicatedBucket(ShardedBucket):
    """A bucket of which several ranks have the same shard."""

    def __init__(self, *args: Any, replicate_group: dist.ProcessGroup, **options: Any) -> None:
        self.replicate_group = replicate_group
        super().__init__(*args, **options)
        self.divisor *= dist.get_world_size(replicate_group)

    def _make_equal(self, flat: torch.Tensor) -> None:
        super()._make_equal(flat)
        dist.broadcast(flat, group=self.replicate_group, group_src=0)

    def scattered(self, reduced: torch.Tensor) -> AllReduction:
        """The gradients of the shard are added up within the shard group: now over its copies."""
        return AllReduction(self, reduced)


class AllReduction(Reduction):
    """An all-reduce of a shard's gradients that is under way."""

    def __init__(self, owner: ReplicatedBucket, reduced: torch.Tensor) -> None:
        self._owner, self._reduced = owner, reduced
        self._work = dist.all_reduce(reduced, group=owner.replicate_group, async_op=True)

    def finish(self) -> None:
        """Wait for it, and give the sharded parameters their gradients."""
        self._work.wait()
        self._owner.hand_out(self._reduced)
