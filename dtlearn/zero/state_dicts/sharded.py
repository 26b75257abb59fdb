"""A sharded state dict: each rank saves its own pieces, with where they belong, and nothing is sent.

It is plain data, that `torch.save` writes and `torch.load` reads without `weights_only=False`. Each piece is known by
the name of its parameter and by which of its elements it has, not by a place in some buffer. So one stage's state can
be read by another stage, and by another number of ranks: see `reshard`.

Source: `torch.distributed.checkpoint`, which keeps the same: of each tensor its global shape, and of each chunk offset
and size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import torch
from torch import nn

from ..partition.flat import plan_flat
from ..partition.partition import Partition


class SavedPiece(TypedDict):
    """Where a saved piece belongs: elements `start` to `stop` of a parameter of this shape, as one vector."""

    shape: list[int]
    start: int
    stop: int


class ShardedState(TypedDict):
    """The state that one rank saves.

    Attributes:
        stage, num_ranks, rank: of whom it is. Stage 0: not sharded, on one rank.
        pieces: by parameter name. All parameters are there, with `start == stop` where the rank has nothing.
        values: by name, (stop - start,), in the format of the pieces.
        sharded_state: of the optimizer, by name and key, such as "exp_avg"; each (stop - start,).
        replicated_state: of the optimizer, by name and key: what is the same on all ranks, such as "step".
        groups: options of the optimizer's groups; under "params" the names.
    """

    stage: int
    num_ranks: int
    rank: int
    pieces: dict[str, SavedPiece]
    values: dict[str, torch.Tensor]
    sharded_state: dict[str, dict[str, torch.Tensor]]
    replicated_state: dict[str, dict[str, Any]]
    groups: list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class ShardedParameters:
    """The parameters of a model, of which this rank has pieces: what saving and loading needs to know of a stage.

    Attributes:
        names, shapes: of all parameters, by number.
        pieces: of each this rank's part, empty ones too.
        partition: who has which elements, by number.
        rank: of this rank among those of the partition.
        stage: 1, 2 or 3; 0: `pieces` are the whole parameters.
        loaded: called when pieces and optimizer have new values. Stages 1 and 2 gather the parameters there: all ranks
            load.
        in_optimizer: what the optimizer has of each, where that is not the piece: of a frozen parameter in stages 1 and
            2 an empty one, because it is not updated. None: the pieces.
    """

    names: Sequence[str]
    shapes: Sequence[Sequence[int]]
    pieces: Sequence[nn.Parameter]
    partition: Partition
    rank: int
    stage: int
    loaded: Callable[[], None] = field(default=lambda: None)
    in_optimizer: Sequence[nn.Parameter] | None = None

    @classmethod
    def of_module(cls, module: nn.Module) -> ShardedParameters:
        """A model that is not sharded, as stage 0 on one rank; see `pieces_of_stages` for the others."""
        named = dict(module.named_parameters())
        pieces = list(named.values())
        partition = plan_flat([piece.numel() for piece in pieces], 1)
        return cls(list(named), [piece.shape for piece in pieces], pieces, partition, rank=0, stage=0)

    def saved_pieces(self) -> dict[str, SavedPiece]:
        """Where each piece of this rank belongs, by name."""
        spans = {piece.parameter: (piece.start, piece.stop) for piece in self.partition.slices(self.rank)}
        return {
            name: SavedPiece(shape=list(shape), start=spans.get(n, (0, 0))[0], stop=spans.get(n, (0, 0))[1])
            for n, (name, shape) in enumerate(zip(self.names, self.shapes, strict=True))
        }

    def named_groups(self, optimizer: torch.optim.Optimizer) -> Iterator[list[tuple[str, nn.Parameter]]]:
        """The pieces in each of the optimizer's groups, with their names.

        Raises:
            ValueError: the optimizer has a tensor that is none of the pieces.
        """
        name_of = {id(piece): name for name, piece in zip(self.names, self.in_optimizer or self.pieces, strict=True)}
        for number, group in enumerate(optimizer.param_groups):
            if any(id(piece) not in name_of for piece in group["params"]):
                raise ValueError(
                    f"the optimizer's group {number} has a tensor that is none of the pieces: it was built before the "
                    "model was sharded, or for another model. Build it over the pieces"
                )
            yield [(name_of[id(piece)], piece) for piece in group["params"]]


@torch.no_grad()
def sharded_state_dict(sharded: ShardedParameters, optimizer: torch.optim.Optimizer | None = None) -> ShardedState:
    """Copy what this rank has of parameters and optimizer state.

    **Communication**: none.
    **Memory**: a copy of the pieces and their state: with Adam in float32, 12Ψ / N bytes.

    Args:
        sharded: the parameters, of stage 0, 1, 2 or 3.
        optimizer: over the pieces; None: values only.

    Raises:
        ValueError: the optimizer is not one over these pieces; or it keeps something of a piece that is neither as
            large as the piece nor a single number, and so cannot be cut anew (a factored second moment, say).
    """
    state = ShardedState(
        stage=sharded.stage,
        num_ranks=sharded.partition.num_ranks,
        rank=sharded.rank,
        pieces=sharded.saved_pieces(),
        values={name: _flat_copy(piece) for name, piece in zip(sharded.names, sharded.pieces, strict=True)},
        sharded_state={},
        replicated_state={},
        groups=[],
    )
    if optimizer is None:
        return state
    for group, named in zip(optimizer.param_groups, sharded.named_groups(optimizer), strict=True):
        options = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        state["groups"].append({**options, "params": [name for name, _ in named]})
        for name, piece in named:
            _add_state(state, name, piece, optimizer.state.get(piece, {}))
    return state


def _add_state(state: ShardedState, name: str, piece: nn.Parameter, of_piece: dict[str, Any]) -> None:
    if not of_piece:
        return  # it had no gradient so far
    state["sharded_state"][name], state["replicated_state"][name] = {}, {}
    for key, value in of_piece.items():
        # By name: a scalar's own moments have the shape of the count of steps. torch's optimizers do so too.
        if isinstance(value, torch.Tensor) and key != "step" and value.shape == piece.shape:
            state["sharded_state"][name][key] = _flat_copy(value)
        elif not isinstance(value, torch.Tensor) or value.numel() == 1:
            state["replicated_state"][name][key] = value.clone() if isinstance(value, torch.Tensor) else value
        else:
            raise ValueError(
                f"the optimizer keeps {key!r} of {name} as {tuple(value.shape)} for a piece of {tuple(piece.shape)}: "
                "neither one value for each element nor a single number, so it cannot be cut anew"
            )


def load_sharded_state_dict(
    state: ShardedState, sharded: ShardedParameters, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Take over what this rank saved, or what `reshard` made for it. All ranks call it.

    **Communication**: none in stages 0 and 3. In stages 1 and 2 one all-gather of the parameters, Ψ(N-1)/N elements.
    **Memory**: none but the pieces and the optimizer's state.

    Args:
        state: changed by nothing that happens afterwards.
        sharded: the parameters; their pieces are changed in place.
        optimizer: over the pieces; None: values only, and any state in `state` is left out.

    Raises:
        ValueError: it is the state of another number of ranks, stage, rank, model, or of other groups. Nothing was
            changed.
    """
    require_same_cut(state, sharded)
    if optimizer is not None:
        _require_same_groups(state, sharded, optimizer)
    with torch.no_grad():
        for name, piece in zip(sharded.names, sharded.pieces, strict=True):
            piece.copy_(state["values"][name].view(piece.shape))
    if optimizer is not None:  # afterwards: it may have masters that follow the values
        _load_optimizer(state, sharded, optimizer)
    sharded.loaded()


def require_same_cut(state: ShardedState, sharded: ShardedParameters) -> None:
    """Check that a state has this rank's pieces.

    Raises:
        ValueError: as `load_sharded_state_dict`.
    """
    require_same_parameters(state, sharded)
    num_ranks = sharded.partition.num_ranks
    advice = "Give the states of all ranks that saved to reshard(), and load what it returns"
    if (state["num_ranks"], state["stage"]) != (num_ranks, sharded.stage):
        raise ValueError(
            f"this state was saved by stage {state['stage']} on {state['num_ranks']} ranks; this is stage "
            f"{sharded.stage} on {num_ranks}. {advice}"
        )
    if state["rank"] != sharded.rank:
        raise ValueError(
            f"this is the state of rank {state['rank']}, and this is rank {sharded.rank}: each rank loads its own"
        )
    for name, piece in sharded.saved_pieces().items():
        saved = state["pieces"][name]
        if (saved["start"], saved["stop"]) != (piece["start"], piece["stop"]):
            raise ValueError(
                f"rank {sharded.rank} has elements {piece['start']} to {piece['stop']} of {name}, and its state has "
                f"{saved['start']} to {saved['stop']}: the buckets or units were others. {advice}"
            )


def require_same_parameters(state: ShardedState, sharded: ShardedParameters) -> None:
    """Check that a state is of parameters with the same names and shapes.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(state, dict) or "pieces" not in state:
        raise ValueError("this is not the state of sharded parameters: sharded_state_dict() makes one")
    saved = state["pieces"]
    if missing := [name for name in sharded.names if name not in saved]:
        raise ValueError(f"the state has no {missing[0]}: it is of another model, or some layers were added since")
    if left := [name for name in saved if name not in set(sharded.names)]:
        raise ValueError(f"the state has {left[0]}, which this model does not have")
    for name, shape in zip(sharded.names, sharded.shapes, strict=True):
        if list(saved[name]["shape"]) != list(shape):
            raise ValueError(f"{name} is {tuple(shape)} here and {tuple(saved[name]['shape'])} in the state")


def _require_same_groups(state: ShardedState, sharded: ShardedParameters, optimizer: torch.optim.Optimizer) -> None:
    groups = [[name for name, _ in named] for named in sharded.named_groups(optimizer)]
    saved = [list(group["params"]) for group in state["groups"]]
    if groups != saved:
        raise ValueError(
            f"the optimizer's groups are {_shortened(groups)}; in the state they are {_shortened(saved)}: make the "
            "same groups, from the same parameters in the same order"
        )


def _load_optimizer(state: ShardedState, sharded: ShardedParameters, optimizer: torch.optim.Optimizer) -> None:
    """Load by the optimizer's own `load_state_dict`, where pieces have numbers in the order of the groups."""
    shapes = {name: piece.shape for name, piece in zip(sharded.names, sharded.pieces, strict=True)}
    numbers = {name: number for number, name in enumerate(n for group in state["groups"] for n in group["params"])}
    loaded = {
        number: {key: value.clone().view(shapes[name]) for key, value in state["sharded_state"][name].items()}
        | {key: _copied(value) for key, value in state["replicated_state"][name].items()}
        for name, number in numbers.items()
        if name in state["sharded_state"]
    }
    options = [{**group, "params": [numbers[name] for name in group["params"]]} for group in state["groups"]]
    optimizer.load_state_dict({"state": loaded, "param_groups": options})


def _flat_copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().flatten().clone()


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _shortened(groups: list[list[str]]) -> str:
    return str([names if len(names) < 4 else [*names[:2], "...", names[-1]] for names in groups])
