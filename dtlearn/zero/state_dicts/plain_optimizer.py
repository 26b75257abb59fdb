"""The state dict of a plain optimizer, from the state of an optimizer over pieces, and cut into pieces again.

Its tensors are like whole parameters, so it fits any number of ranks, and training without ZeRO.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..partition.partition import Slice

State = dict[int, dict[str, Any]]  # by the parameter's number, as in `Optimizer.state_dict()["state"]`
Owners = Sequence[Sequence[Slice]]  # of each parameter, its slices in the order of its elements


def consolidate(
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[torch.Tensor],
    owners: Owners,
    to: int,
    *,
    group: dist.ProcessGroup | None = None,
) -> dict[str, Any] | None:
    """Bring the state of an optimizer over pieces to one rank.

    **Communication**: one gather of Python objects, each rank's state to rank `to`, pickled.
    **Memory**: the whole state on that rank, and at first the shards of all beside it, in the memory of its host.

    Args:
        optimizer: over the pieces.
        parameters: whole, by number, for their shapes.
        owners: their slices.
        to: rank in the group.
        group: ranks that have the pieces; None: all.

    Returns:
        On rank `to` a state dictionary over whole parameters; None on the others.
    """
    is_root = dist.get_rank(group) == to
    states: list[Any] | None = [None] * dist.get_world_size(group) if is_root else None
    root = to if group is None else dist.get_global_rank(group, to)
    own = optimizer.state_dict()
    dist.gather_object(on_cpu(own["state"]), states, dst=root, group=group)
    return None if states is None else {**own, "state": assemble(states, parameters, owners)}


def on_cpu(state: State) -> State:
    """A copy of a state, in the memory of the host."""
    return {
        number: {k: v.to("cpu", copy=True) if isinstance(v, torch.Tensor) else v for k, v in values.items()}
        for number, values in state.items()
    }


def assemble(states: Sequence[State], parameters: Sequence[torch.Tensor], owners: Owners) -> State:
    """The state over whole parameters.

    Args:
        states: of the pieces, by rank.
        parameters: whole, for their shapes.
        owners: their slices.

    Returns:
        Vectors as long as the pieces become tensors like the parameters. Other values, such as Adam's count of steps,
        are those of the first rank that has them: all have the same.
    """
    whole: State = {}
    for number, (parameter, pieces) in enumerate(zip(parameters, owners, strict=True)):
        for piece in pieces:
            for key, value in states[piece.rank].get(number, {}).items():
                values = whole.setdefault(number, {})
                if shape_of(value) != (piece.numel,):
                    values.setdefault(key, value)
                    continue
                if key not in values:
                    values[key] = torch.zeros(parameter.shape, dtype=value.dtype)
                values[key].view(-1)[piece.start : piece.stop] = value
    return whole


def own_part(
    state_dict: dict[str, Any],
    parameters: Sequence[torch.Tensor],
    pieces: Sequence[torch.Tensor],
    owners: Owners | None,
    rank: int,
) -> dict[str, Any]:
    """A rank's part of a state over whole parameters: of new tensors, so that the whole can go.

    Args:
        state_dict: over whole parameters; the same on all ranks.
        parameters, pieces: for their shapes; this rank owns what a piece has elements of.
        owners: their slices; None: no parameter is cut, and a state may have tensors of any shape.
        rank: whose part.

    Returns:
        A state dictionary over the pieces.

    Raises:
        ValueError: it has another number of parameters, or a tensor that is not like its parameter.
    """
    numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
    if len(numbers) != len(parameters):
        raise ValueError(
            f"this state is of {len(numbers)} parameters, and the optimizer has {len(parameters)}: build it over the "
            "same model, with the same groups"
        )
    state: State = state_dict["state"]
    # One of a parameter without dimensions looks like a number: other parameters tell which it is.
    like_parameters = {key for values in state.values() for key, value in values.items() if shape_of(value)}
    own: State = {}
    for place, number in enumerate(numbers):
        values = dict(state.get(number, {}))
        if owners is not None:
            own_slice = [slice(piece.start, piece.stop) for piece in owners[place] if piece.rank == rank]
            for key in like_parameters & values.keys():
                require_shape(place, key, values[key], parameters[place])  # on all ranks, whoever owns it
                for part in own_slice:  # one or none
                    values[key] = values[key].reshape(-1)[part].view_as(pieces[place])
        if values and pieces[place].numel():
            own[number] = {key: copy_of(value) for key, value in values.items()}
    return {**state_dict, "state": own}


def require_shape(number: int, key: str, value: torch.Tensor, parameter: torch.Tensor) -> None:
    """A state's tensor has to be like the parameter.

    Raises:
        ValueError: it is not.
    """
    if value.shape != parameter.shape:
        raise ValueError(
            f"{key} of parameter {number} has the shape {tuple(value.shape)}, and the parameter "
            f"{tuple(parameter.shape)}: this is the state of a shard, of this or another number of ranks, or of "
            "another model. Load what state_dict() returns after consolidate_state_dict()"
        )


def copy_of(value: Any) -> Any:
    """A tensor in memory of its own; any other value as it is."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of a tensor; None for anything else."""
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None
