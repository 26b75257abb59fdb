"""The sharded parameters of each stage, for saving and loading; and the optimizer that goes with them.

sharded, inner = pieces_of_stage1(model, optimizer)  # a ZeroRedundancyOptimizer
state = sharded_state_dict(sharded, inner)

sharded = pieces_of_stage3(model)  # a FullyShardedDataParallel
state = sharded_state_dict(sharded, optimizer)

It imports both sides: `stages` know nothing of these states, and `state_dicts` nothing of stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.flat_collectives import all_gather_single

from .partition.flat import plan_flat
from .partition.partition import Bucket, Partition
from .stages.zero1 import ZeroRedundancyOptimizer
from .stages.zero3 import FullyShardedDataParallel
from .state_dicts.sharded import ShardedParameters


def pieces_of_stage1(
    module: nn.Module, optimizer: ZeroRedundancyOptimizer, *, stage: int = 1
) -> tuple[ShardedParameters, torch.optim.Optimizer]:
    """The pieces that a `ZeroRedundancyOptimizer` updates, and its optimizer over them.

    Parameters that are frozen, or that the optimizer was not given, are whole on every rank. For saving
    they are divided like the others, so that each element is in one rank's state.

    **Communication**: none here. Loading into these gathers all parameters.
    **Memory**: none; in loading, what is frozen once more, until it is gathered.

    Args:
        module: the model, for the names; of DDP or stage 2, its `.module`.
        optimizer: over parameters of that model.
        stage: 1, or 2 if gradients are sharded too.

    Raises:
        ValueError: the optimizer has a parameter that the model does not have.
    """
    flat, named = optimizer.flat, dict(module.named_parameters())
    names = {id(parameter): name for name, parameter in named.items()}
    if any(id(parameter) not in names for parameter in optimizer.parameters):
        raise ValueError("the optimizer has a parameter that this model does not have: give the model that it trains")
    trained = set(map(id, flat.parameters))
    others = [p for p in named.values() if id(p) not in trained]
    parameters = [*flat.parameters, *others]  # the partition's numbers are those of the first
    partition = _with_others(flat.partition, others)
    own = {piece.parameter: slice(piece.start, piece.stop) for piece in partition.slices(flat.rank)}
    parts = [own.get(number, slice(0)) for number in range(len(flat.parameters), len(parameters))]
    pieces = [*flat.pieces, *(_part(p, part) for p, part in zip(others, parts, strict=True))]
    in_optimizer = {id(p): piece for p, piece in zip(optimizer.parameters, optimizer.pieces, strict=True)}

    def loaded() -> None:
        optimizer.share_state()
        flat.all_gather()
        for bucket in partition.buckets[len(flat.partition.buckets) :]:
            _gather(bucket, parameters, pieces, flat.rank, flat.group)

    return ShardedParameters(
        names=[names[id(parameter)] for parameter in parameters],
        shapes=[parameter.shape for parameter in parameters],
        pieces=pieces,
        partition=partition,
        rank=flat.rank,
        stage=stage,
        loaded=loaded,
        in_optimizer=[in_optimizer.get(id(p), piece) for p, piece in zip(parameters, pieces, strict=True)],
    ), optimizer.optim


def _with_others(partition: Partition, others: Sequence[nn.Parameter]) -> Partition:
    """A partition with more parameters, in buckets behind its own."""
    first, index = len(partition.sizes), len(partition.buckets)
    sizes, kinds = [p.numel() for p in others], [(p.dtype, p.device) for p in others]
    more = [
        replace(bucket, index=index + bucket.index, parameters=tuple(first + number for number in bucket.parameters))
        for bucket in plan_flat(sizes, partition.num_ranks, kinds=kinds).buckets
    ]
    return Partition((*partition.sizes, *sizes), partition.num_ranks, (*partition.buckets, *more))


def _part(parameter: nn.Parameter, part: slice) -> nn.Parameter:
    """A part of a parameter as one vector, in the same memory."""
    if not parameter.is_contiguous():
        parameter.data = parameter.data.contiguous()
    return nn.Parameter(parameter.detach().view(-1)[part], requires_grad=False)


@torch.no_grad()
def _gather(
    bucket: Bucket,
    parameters: Sequence[nn.Parameter],
    pieces: Sequence[nn.Parameter],
    rank: int,
    group: dist.ProcessGroup | None,
) -> None:
    """Fetch the other ranks' parts of these parameters."""
    full = parameters[bucket.parameters[0]].new_zeros(bucket.numel)
    shard = full[rank * bucket.shard :][: bucket.shard]
    for own in bucket.slices(rank):
        shard[own.offset :][: own.numel] = pieces[own.parameter]
    all_gather_single(full, shard, group=group)
    for number, size, offset in zip(bucket.parameters, bucket.sizes, bucket.offsets, strict=True):
        parameters[number].copy_(full[offset:][:size].view_as(parameters[number]))


def pieces_of_stage3(wrapped: FullyShardedDataParallel, *, group: dist.ProcessGroup | None = None) -> ShardedParameters:
    """The pieces that are the parameters of a sharded model.

    **Communication**: none. **Memory**: none.

    Args:
        wrapped: the model.
        group: the one that it was given; under hybrid sharding the shard group, of which one is enough to save.
    """
    return ShardedParameters(
        names=wrapped.names,
        shapes=wrapped.shapes,
        pieces=wrapped.sharded_params,
        partition=wrapped.partition,
        rank=dist.get_rank(group),
        stage=3,
    )
