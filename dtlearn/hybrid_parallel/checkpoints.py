"""Checkpoints that do not know the mesh: each rank saves what it has, with where that lies in the whole model.

A rank's piece is cut twice: along tp into even parts (experts along ep, by their numbers), and a part, under ZeRO, into
a stretch of its elements. Both are boxes of elements of the whole tensor, and any layout can read from the boxes of any
other (`dtlearn.sharing`'s `resharding`): another tp, pp, dp, cp or ep, other schedules, another stage of ZeRO.

    torch.save(mesh_state(model), f"step100/rank{rank}.pt")                                      # on each rank
    load_mesh_states(other, [torch.load(file, mmap=True) for file in sorted(folder.glob("*.pt"))])    # on each rank

What several ranks have alike is saved by the first of them: replicated parameters by tp 0, without ZeRO those of all
replicas by the first, a tied weight by the first stage. Random states are not saved: they belong to ranks, and dropout
goes on anew.

Source: `torch.distributed.checkpoint`; Universal Checkpointing, 2406.18820.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypedDict

import torch

from dtlearn.expert_parallel import ExpertGPTConfig
from dtlearn.models import GPTConfig
from dtlearn.sharing.resharding import Box, Piece, flat_piece, in_whole, plan_reads, read_into, whole_piece
from dtlearn.sharing.shards import rank_and_size
from dtlearn.zero import ShardedState, load_sharded_state_dict, sharded_state_dict

from .more_axes.experts import mesh_shapes
from .recipe import HybridGPT
from .replicas import TrainedExperts, TrainedStage
from .stages import HEAD, TOKEN

SavedBox = tuple[list[int], list[int], int]  # start, stop and offset of a `Box`: plain data for a file


class MeshState(TypedDict):
    """What one rank saves, by the parameters' names in `GPT`; a parameter that it does not save is not there.

    Attributes:
        config: of the whole model, as `GPTConfig(**config)`, or `ExpertGPTConfig(**config)`.
        boxes: where the rank's elements lie in the whole tensor.
        values: one after the other, in the order of the boxes, with padding in between.
        sharded_state: of the optimizer, by name and key, such as "exp_avg": like `values`.
        replicated_state: what is one value for a parameter, such as "step".
        options: of the optimizer.
    """

    config: dict[str, Any]
    boxes: dict[str, list[SavedBox]]
    values: dict[str, torch.Tensor]
    sharded_state: dict[str, dict[str, torch.Tensor]]
    replicated_state: dict[str, dict[str, Any]]
    options: dict[str, Any]


def mesh_state(model: HybridGPT) -> MeshState:
    """What this rank has to save of the model and of its optimizers, copied.

    **Communication**: none.
    **Memory**: a copy of this rank's pieces and their state.

    Args:
        model: any layout.
    """
    state = MeshState(
        config=asdict(model.config), boxes={}, values={}, sharded_state={}, replicated_state={}, options={}
    )
    place = model.groups.coordinates
    for stage, pieces in _own_pieces(model):
        own = sharded_state_dict(stage.sharded, stage.inner)
        state["options"] = {key: value for key, value in own["groups"][0].items() if key != "params"}
        for name, (whole_name, piece) in pieces.items():
            is_copy = (stage.zero == 0 and rank_and_size(stage.replicas)[0] > 0) or name != whole_name
            if is_copy or not piece.boxes or (stage.dims[name] is None and place.tp > 0):
                continue  # of an empty piece ZeRO's optimizer does not even count the steps
            state["boxes"][name] = [(list(box.start), list(box.stop), box.offset) for box in piece.boxes]
            state["values"][name] = own["values"][name]
            if name in own["sharded_state"]:
                state["sharded_state"][name] = own["sharded_state"][name]
                state["replicated_state"][name] = own["replicated_state"][name]
    return state


def load_mesh_states(model: HybridGPT, states: Sequence[MeshState]) -> None:
    """Take this rank's pieces, and their optimizer state, from what all ranks of another mesh saved. All ranks call it.

    **Communication**: none; in ZeRO 1 and 2 a gather of the parameters over dp.
    **Memory**: this rank's pieces once more; of files, what is read.

    Args:
        model: any layout, of the same sizes.
        states: of all ranks that saved, in any order.

    Raises:
        ValueError: another model; elements that no state has, or two; an optimizer with other state.
    """
    _require_config(model.config, states)
    shapes = mesh_shapes(model.config)
    saved = [_saved_pieces(state, shapes) for state in states]
    for stage, pieces in _own_pieces(model):
        own: dict[str, Any] = {"values": {}, "sharded_state": {}, "replicated_state": {}}
        for name, (whole_name, piece) in pieces.items():
            reads = plan_reads([{whole_name: of[whole_name]} for of in saved], {whole_name: piece})[whole_name]
            like = stage.pieces[name]

            def read(parts: Mapping[int, torch.Tensor], like: torch.Tensor = like, reads: Any = reads) -> torch.Tensor:
                values = torch.zeros(like.numel(), dtype=like.dtype)  # rows of padding stay zeros
                read_into(values, reads, parts)
                return values.to(like.device)

            own["values"][name] = read(_of(states, "values", whole_name))
            having = [state for state in states if whole_name in state["replicated_state"]]
            if having:
                own["replicated_state"][name] = dict(having[0]["replicated_state"][whole_name])
                keys = {key for state in having for key in state["sharded_state"][whole_name]}
                own["sharded_state"][name] = {
                    key: read(_of(states, "sharded_state", whole_name, key)) for key in sorted(keys)
                }
        _load(stage, own, states[0]["options"])


def whole_parameters(states: Sequence[MeshState], key: str | None = None) -> dict[str, torch.Tensor]:
    """The parameters of the whole model, by name, or what the optimizer keeps of them under a key, such as "exp_avg".

    **Communication**: none. **Memory**: the whole model.

    Args:
        states: of all ranks that saved, in any order.
        key: None: the parameters themselves.

    Raises:
        ValueError: elements that no state has, or two.
    """
    saved_config = states[0]["config"]
    config = ExpertGPTConfig(**saved_config) if "num_experts" in saved_config else GPTConfig(**saved_config)
    shapes, whole = mesh_shapes(config), {}
    saved = [_saved_pieces(state, shapes) for state in states]
    for name, reads in plan_reads(saved, {name: whole_piece(shape) for name, shape in shapes.items()}).items():
        parts = _of(states, "values", name) if key is None else _of(states, "sharded_state", name, key)
        whole[name] = next(iter(parts.values())).new_zeros(shapes[name])
        read_into(whole[name], reads, parts)
    return whole


def _own_pieces(model: HybridGPT) -> Iterator[tuple[TrainedStage, dict[str, tuple[str, Piece]]]]:
    """Each part that this rank trains, and by parameter its name in the whole model and which elements are here."""
    shapes = mesh_shapes(model.config)
    place = model.groups.coordinates
    for stage in model.parts:
        pieces = {}
        for name, piece in stage.sharded.saved_pieces().items():
            whole_name = TOKEN if name == HEAD and model.config.tie_embeddings else name
            local = flat_piece(piece["shape"], piece["start"], piece["stop"])
            cut = (0, place.ep) if isinstance(stage, TrainedExperts) else (stage.dims[name], place.tp)
            pieces[name] = whole_name, in_whole(local, shapes[whole_name], *cut)
        yield stage, pieces


def _saved_pieces(state: MeshState, shapes: Mapping[str, Sequence[int]]) -> dict[str, Piece]:
    boxes = state["boxes"]
    return {
        name: Piece(tuple(shape), tuple(Box(tuple(a), tuple(b), offset) for a, b, offset in boxes.get(name, ())))
        for name, shape in shapes.items()
    }


def _of(states: Sequence[Any], what: str, name: str, key: str | None = None) -> dict[int, torch.Tensor]:
    """The tensor of that name in each state that has it, by the state's place."""
    having = {place: state[what][name] for place, state in enumerate(states) if name in state[what]}
    if key is None:
        return having
    return {place: tensors[key] for place, tensors in having.items() if key in tensors}


def _load(stage: TrainedStage, own: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    sharded = stage.sharded
    groups = [[name for name, _ in named] for named in sharded.named_groups(stage.inner)]
    state = ShardedState(
        stage=sharded.stage,
        num_ranks=sharded.partition.num_ranks,
        rank=sharded.rank,
        pieces=sharded.saved_pieces(),
        values=own["values"],
        sharded_state=own["sharded_state"],
        replicated_state=own["replicated_state"],
        groups=[{**options, "params": names} for names in groups],
    )
    load_sharded_state_dict(state, sharded, stage.inner)


def _require_config(config: GPTConfig, states: Sequence[MeshState]) -> None:
    if not states:
        raise ValueError("the states of all ranks that saved are needed; got none")
    for name, here in asdict(config).items():
        there = {state["config"].get(name) for state in states}
        if name != "dropout" and there != {here}:
            raise ValueError(
                f"this is the state of another model: {name} is {sorted(there, key=str)} there, and {here} here"
            )
