"""The states of all ranks put together, and what is made of them: plain state dicts of a model that is not sharded.

A whole state is the state of one rank that has everything, stage 0. So putting together is resharding to one rank, and
a whole state is loaded into a sharded model by resharding it to N.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..partition.flat import plan_flat
from .reshard import reshard
from .sharded import ShardedParameters, ShardedState, sharded_state_dict


def consolidate(states: Sequence[ShardedState]) -> ShardedState:
    """The whole state from the states of all ranks.

    **Communication**: none.
    **Memory**: a copy of everything: with Adam in float32, 12Ψ bytes.

    Raises:
        ValueError: as `reshard`.
    """
    if not states:
        raise ValueError("consolidate() needs the states of all ranks that saved; got none")
    shapes = {name: piece["shape"] for name, piece in states[0]["pieces"].items()}
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    nothing = [nn.Parameter(torch.empty(0)) for _ in shapes]  # only names and places are looked at
    to = ShardedParameters(list(shapes), list(shapes.values()), nothing, plan_flat(sizes, 1), rank=0, stage=0)
    return reshard(states, to)


def consolidated_state_dict(
    sharded: ShardedParameters,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    to: int = 0,
    group: dist.ProcessGroup | None = None,
) -> ShardedState | None:
    """Collect the whole state on one rank. All ranks of the group call it.

    For large models let each rank save its own instead, and put files together in another process:
    here one rank needs memory for everything, and the others wait for it.

    **Communication**: one gather of pickled states: N - 1 ranks send the bytes of their pieces and their
    state, with Adam in float32 12Ψ / N. Another of 8 bytes, with the lengths.
    **Memory**: on rank `to` all states and the whole one, with Adam in float32 24Ψ bytes; on the others
    a copy of their own.

    Args:
        sharded, optimizer: as `sharded_state_dict`.
        to: rank in the group that gets it.
        group: ranks that have the model once; None: all. Under hybrid sharding it is the shard group.

    Returns:
        On rank `to`, the whole state; on all others None.
    """
    own = sharded_state_dict(sharded, optimizer)
    rank, num_ranks = dist.get_rank(group), dist.get_world_size(group)
    states: list[Any] | None = [None] * num_ranks if rank == to else None
    dist.gather_object(own, states, group=group, group_dst=to)
    return consolidate(states) if states is not None else None


def model_state_dict(whole: ShardedState) -> dict[str, torch.Tensor]:
    """The parameters with their shapes, as `model.state_dict()` names them; no buffers.

    Raises:
        ValueError: it is the state of one rank of several.
    """
    _require_whole(whole)
    return {name: whole["values"][name].view(piece["shape"]) for name, piece in whole["pieces"].items()}


def optimizer_state_dict(whole: ShardedState) -> dict[str, Any]:
    """As `torch.optim.Optimizer.state_dict()`: parameters are numbered in the order of the groups.

    Raises:
        ValueError: it is the state of one rank of several.
    """
    _require_whole(whole)
    names = [name for group in whole["groups"] for name in group["params"]]
    numbers = {name: number for number, name in enumerate(names)}
    state = {
        numbers[name]: {key: value.view(whole["pieces"][name]["shape"]) for key, value in tensors.items()}
        | whole["replicated_state"][name]
        for name, tensors in whole["sharded_state"].items()
    }
    groups = [{**group, "params": [numbers[name] for name in group["params"]]} for group in whole["groups"]]
    return {"state": state, "param_groups": groups}


def _require_whole(state: ShardedState) -> None:
    if state["num_ranks"] != 1:
        raise ValueError(
            f"this is the state of rank {state['rank']} of {state['num_ranks']}: consolidate() puts them all together"
        )
