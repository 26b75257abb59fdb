"""The sharded parameters of each stage, for saving and loading; and the optimizer that goes with them.

sharded, inner = pieces_of_stage1(model, optimizer)  # a ZeroRedundancyOptimizer
state = sharded_state_dict(sharded, inner)

sharded = pieces_of_stage3(model)  # a FullyShardedDataParallel
state = sharded_state_dict(sharded, optimizer)
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ..stages.zero1 import ZeroRedundancyOptimizer
from ..stages.zero3 import FullyShardedDataParallel
from .sharded import ShardedParameters


def pieces_of_stage1(
    module: nn.Module, optimizer: ZeroRedundancyOptimizer, *, stage: int = 1
) -> tuple[ShardedParameters, torch.optim.Optimizer]:
    """The pieces that a `ZeroRedundancyOptimizer` updates, and its optimizer over them.

    Parameters that are frozen, or that the optimizer was not given, have no pieces: every rank has them
    whole, and `module.state_dict()` on one rank saves them.

    **Communication**: none here. Loading into these gathers the parameters.
    **Memory**: none.

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
    piece_of = {id(p): piece for p, piece in zip(optimizer.parameters, optimizer.pieces, strict=True)}
    trained = set(map(id, flat.parameters))
    others = [p for p in named.values() if id(p) not in trained]
    parameters = [*flat.parameters, *others]  # the partition's numbers are those of the first

    def loaded() -> None:
        optimizer.show_inner()
        flat.gather()

    return ShardedParameters(
        names=[names[id(parameter)] for parameter in parameters],
        shapes=[parameter.shape for parameter in parameters],
        pieces=[piece_of.get(id(p), nn.Parameter(p.new_empty(0), requires_grad=False)) for p in parameters],
        partition=flat.partition,
        rank=flat.rank,
        stage=stage,
        loaded=loaded,
    ), optimizer.optim


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
        pieces=wrapped.pieces,
        partition=wrapped.partition,
        rank=dist.get_rank(group),
        stage=3,
    )
