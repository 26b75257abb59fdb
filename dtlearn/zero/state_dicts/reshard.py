"""A state saved by some ranks, cut anew for other ranks, another stage, or other buckets.

Each rank reads from the saved states the slices that overlap with its own pieces, and nothing else. With files,
`torch.load(path, mmap=True)` reads a tensor only where it is looked at, so a rank reads about its 1 / N of the bytes.

    states = [torch.load(f"rank{r}.pt", mmap=True) for r in range(4)]  # saved by 4 ranks
    load_sharded_state_dict(reshard(states, sharded), sharded, optimizer)  # on each of 2 ranks

Source: `torch.distributed.checkpoint`, whose planner looks for the overlaps in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dtlearn.sharing.resharding import Piece, Read, flat_piece, plan_reads, read_into

from .sharded import SavedPiece, ShardedParameters, ShardedState, require_same_parameters


@torch.no_grad()
def reshard(states: Sequence[ShardedState], sharded: ShardedParameters) -> ShardedState:
    """The state of this rank's pieces, read from the states of all ranks that saved.

    **Communication**: none.
    **Memory**: the state that is returned.

    Args:
        states: in any order.
        sharded: whose pieces are wanted; nothing of it is changed.

    Returns:
        A state that `load_sharded_state_dict` takes, with tensors of its own.

    Raises:
        ValueError: a rank's state is missing, comes twice, or is of another run or another step; or they are of
            another model.
    """
    states = _in_order(states)
    for state in states:
        require_same_parameters(state, sharded)
    wanted = sharded.saved_pieces()
    reads = plan_reads([_as_vectors(state["pieces"]) for state in states], _as_vectors(wanted))
    result = ShardedState(
        stage=sharded.stage,
        num_ranks=sharded.partition.num_ranks,
        rank=sharded.rank,
        pieces=wanted,
        values={},
        sharded_state={},
        replicated_state={},
        groups=[dict(group) for group in states[0]["groups"]],
    )
    for name, piece in wanted.items():
        values = dict(enumerate(state["values"][name] for state in states))
        result["values"][name] = _read(values, piece, reads[name])
        if any(name in state["replicated_state"] for state in states):
            result["replicated_state"][name] = _replicated(states, name)
            result["sharded_state"][name] = _sharded(states, name, piece, reads[name])
    return result


def _in_order(states: Sequence[ShardedState]) -> list[ShardedState]:
    if not states:
        raise ValueError("reshard() needs the states of all ranks that saved; got none")
    first = states[0]
    for state in states:
        if not isinstance(state, dict) or "pieces" not in state:
            raise ValueError("one of the states is not that of sharded parameters: sharded_state_dict() makes one")
        if (state["stage"], state["num_ranks"]) != (first["stage"], first["num_ranks"]):
            raise ValueError(
                f"states of two runs: one was saved by stage {first['stage']} on {first['num_ranks']} ranks, one by "
                f"stage {state['stage']} on {state['num_ranks']}"
            )
        if _names_of_groups(state) != _names_of_groups(first):
            raise ValueError("states of two runs: the groups of the optimizers are not the same")
    ranks = sorted(state["rank"] for state in states)
    if ranks != list(range(first["num_ranks"])):
        raise ValueError(
            f"{first['num_ranks']} ranks saved, and these are the states of ranks {ranks}: each is needed, once"
        )
    return sorted(states, key=lambda state: state["rank"])


def _names_of_groups(state: ShardedState) -> list[list[str]]:
    return [group["params"] for group in state["groups"]]


def _as_vectors(pieces: Mapping[str, SavedPiece]) -> dict[str, Piece]:
    return {name: flat_piece([math.prod(p["shape"])], p["start"], p["stop"]) for name, p in pieces.items()}


def _read(saved: Mapping[int, torch.Tensor], piece: SavedPiece, reads: Sequence[Read]) -> torch.Tensor:
    """The slices one after the other, (stop - start,), copied."""
    values = next(iter(saved.values())).new_empty(piece["stop"] - piece["start"])
    read_into(values, reads, saved)
    return values


def _sharded(
    states: Sequence[ShardedState], name: str, piece: SavedPiece, reads: Sequence[Read]
) -> dict[str, torch.Tensor]:
    keys = dict.fromkeys(key for state in states for key in state["sharded_state"].get(name, {}))
    result = {}
    for key in keys:
        by_name = [state["sharded_state"].get(name, {}) for state in states]
        saved = {number: tensors[key] for number, tensors in enumerate(by_name) if key in tensors}
        if missing := [states[read.saved]["rank"] for read in reads if read.saved not in saved]:
            raise ValueError(
                f"rank {missing[0]} saved no {key!r} of {name}, and others did: the states are of different steps"
            )
        result[key] = _read(saved, piece, reads)
    return result


def _replicated(states: Sequence[ShardedState], name: str) -> dict[str, Any]:
    """Replicated state, of ranks with elements: an optimizer may leave out an empty piece, and its count of steps."""
    with_elements = [s for s in states if s["pieces"][name]["start"] < s["pieces"][name]["stop"]]
    result: dict[str, Any] = {}
    for state in with_elements or states:
        for key, value in state["replicated_state"].get(name, {}).items():
            if key in result and not _equal(result[key], value):
                raise ValueError(
                    f"{key!r} of {name} is {_shown(value)} on rank {state['rank']} and {_shown(result[key])} on a rank "
                    "before it: the states are of different steps"
                )
            result[key] = value.clone() if isinstance(value, torch.Tensor) else value
    return result


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)


def _shown(value: Any) -> str:
    return str(value.item() if isinstance(value, torch.Tensor) else value)
