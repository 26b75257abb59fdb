"""Which elements of which whole tensor a rank has: the only thing that a checkpoint wants to know of a strategy.

A rank's own tensor may be a part of the whole along a dim (tensor parallelism), and of this part it may keep a stretch
of the elements (ZeRO). `ShardedParameters` of `dtlearn.zero` knows the stretch, a `Cut` the part:

    whole (4, 6)      columns for tp = 2      of rank 1's, the second half for ZeRO on 2 ranks
    . . . . . .       . . . x x x             . . . . . .
    . . . . . .       . . . x x x             . . . . . .
    . . . . . .       . . . x x x             . . . x x x
    . . . . . .       . . . x x x             . . . x x x

Where several ranks have the same elements, each saves a stretch of its own, so that no element is saved twice and all
write at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from dtlearn.sharing.resharding import Box, Piece, flat_piece, in_whole
from dtlearn.tensor_parallel import ParallelGPT
from dtlearn.tensor_parallel.checkpoints import gpt_split_dims
from dtlearn.tensor_parallel.gpt import whole_shapes
from dtlearn.zero import ShardedParameters, ShardedState, load_sharded_state_dict

from .format import CheckpointError, Manifest
from .pieces import Shards

MODEL, OPTIMIZER = "model.", "optimizer."


class Cut(NamedTuple):
    """How a rank's own tensor lies in the whole one, and who has the same.

    Attributes:
        shape: of the whole tensor.
        dim: along which it is divided into parts of equal length (the last may have padding); None: it is whole.
        part: which part this rank has, from 0.
        copy, copies: this is copy number `copy` of `copies` that are alike; each saves a stretch of it.
    """

    shape: tuple[int, ...]
    dim: int | None = None
    part: int = 0
    copy: int = 0
    copies: int = 1


def replicated_cuts(model: nn.Module, *, copy: int, copies: int) -> dict[str, Cut]:
    """The cuts of a model that each of several ranks has whole, as in data parallelism, by parameter.

    **Communication** and **Memory**: none.

    Args:
        model: any.
        copy, copies: the data-parallel rank, and how many there are.
    """
    return {name: Cut(tuple(p.shape), copy=copy, copies=copies) for name, p in model.named_parameters()}


def tensor_parallel_cuts(model: ParallelGPT, *, copy: int = 0, copies: int = 1) -> dict[str, Cut]:
    """The cuts of a `ParallelGPT`, whose ranks have parts of some parameters and the others whole, by parameter.

    **Communication** and **Memory**: none.

    Args:
        model: of this rank.
        copy, copies: the data-parallel rank, and how many there are; 0 and 1 too if ZeRO divides what it has.
    """
    shapes, dims = whole_shapes(model.config), gpt_split_dims(model.config)
    cuts = {}
    for name, _ in model.named_parameters():
        if dims[name] is None:  # each tp rank of each replica has it
            cuts[name] = Cut(
                tuple(shapes[name]), None, 0, copy * model.num_ranks + model.rank, copies * model.num_ranks
            )
        else:
            cuts[name] = Cut(tuple(shapes[name]), dims[name], model.rank, copy, copies)
    return cuts


def shards_of(
    sharded: ShardedParameters, optimizer: torch.optim.Optimizer, cuts: Mapping[str, Cut]
) -> tuple[Shards, list[dict[str, Any]]]:
    """What this rank has to save of parameters and optimizer, and the options of the optimizer's groups.

    **Communication**: none. **Memory**: none; the shards are views.

    Args:
        sharded: `ShardedParameters.of_module(model)`, or of a stage of ZeRO.
        optimizer: over its pieces.
        cuts: by the parameters' names.

    Raises:
        CheckpointError: the optimizer keeps something that is neither one value for each element nor a single one.
    """
    own, shards = sharded.saved_pieces(), dict[str, tuple[Piece, torch.Tensor]]()
    stretches = {}
    for name, piece in zip(sharded.names, sharded.pieces, strict=True):
        start, stop, cut = own[name]["start"], own[name]["stop"], cuts[name]
        length = -(-(stop - start) // cut.copies)
        first = min(start + cut.copy * length, stop)
        last = min(first + length, stop)
        saved = in_whole(flat_piece(own[name]["shape"], first, last), cut.shape, cut.dim, cut.part)
        stretches[name] = (saved, slice(first - start, last - start), first == 0 and cut.part == 0)
        shards[MODEL + name] = (saved, piece.detach().flatten()[stretches[name][1]])
    for name, key, value, is_number in _optimizer_state(sharded, optimizer):
        saved, stretch, has_first = stretches[name]
        if is_number:  # saved by whoever has the first element
            has = Piece((), (Box((), ()),) if has_first and saved.boxes else ())
            shards[f"{OPTIMIZER}{name}.{key}"] = (has, value.reshape(1))
        else:
            shards[f"{OPTIMIZER}{name}.{key}"] = (saved, value.flatten()[stretch])
    options = [{k: v for k, v in g.items() if k not in ("params", "param_names")} for g in optimizer.param_groups]
    return shards, options


def _optimizer_state(
    sharded: ShardedParameters, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, str, torch.Tensor, bool]]:
    """Name, key and tensor of all state that is kept, and whether it is a single number, such as "step"."""
    for named in sharded.named_groups(optimizer):
        for name, piece in named:
            for key, value in optimizer.state.get(piece, {}).items():
                if value is None:
                    continue
                # By name: a scalar's own moments have the shape of the count of steps.
                by_element = isinstance(value, torch.Tensor) and key != "step" and value.shape == piece.shape
                if not by_element and not (isinstance(value, torch.Tensor) and value.numel() == 1):
                    what = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
                    raise CheckpointError(
                        f"the optimizer keeps {key!r} of {name} as {what} for a piece of {tuple(piece.shape)}: neither "
                        "one value for each element nor a single number as a tensor, so it cannot be cut anew"
                    )
                yield name, key, value.detach(), not by_element


def wanted_by(sharded: ShardedParameters, cuts: Mapping[str, Cut], manifest: Manifest) -> dict[str, Piece]:
    """The pieces that this rank needs, by their names in the checkpoint.

    **Communication** and **Memory**: none.

    Args:
        sharded, cuts: as for `shards_of`, of the job that loads.
        manifest: what was saved.
    """
    wanted = {}
    for name, own in sharded.saved_pieces().items():
        cut = cuts[name]
        piece = in_whole(flat_piece(own["shape"], own["start"], own["stop"]), cut.shape, cut.dim, cut.part)
        wanted[MODEL + name] = piece
        if piece.boxes:
            for key in _keys(manifest, name):
                saved = f"{OPTIMIZER}{name}.{key}"
                is_number = key == "step" or manifest.tensors[saved].shape != cuts[name].shape
                wanted[saved] = Piece((), (Box((), ()),)) if is_number else piece
    return wanted


def _keys(manifest: Manifest, name: str) -> list[str]:
    """The keys under which the optimizer kept state of a parameter, such as "exp_avg"."""
    start = f"{OPTIMIZER}{name}."
    keys = (saved.removeprefix(start) for saved in manifest.tensors if saved.startswith(start))
    return [key for key in keys if "." not in key]  # "a.b" may be a parameter beside "a"


def load_shards(
    sharded: ShardedParameters,
    optimizer: torch.optim.Optimizer,
    cuts: Mapping[str, Cut],
    tensors: Mapping[str, torch.Tensor],
    options: list[dict[str, Any]],
) -> None:
    """Take over what was read of the pieces in `wanted_by`. All ranks call it.

    **Communication**: as `load_sharded_state_dict`: in ZeRO 1 and 2 an all-gather of the parameters, otherwise none.
    **Memory**: the pieces once more.

    Args:
        sharded, optimizer, cuts: as for `shards_of`; changed in place.
        tensors: by name, flat.
        options: of the optimizer's groups.

    Raises:
        CheckpointError: the optimizer has another number of groups.
    """
    if len(options) != len(optimizer.param_groups):
        raise CheckpointError(
            f"the optimizer has {len(optimizer.param_groups)} groups of parameters, and {len(options)} were saved: "
            "make the same groups"
        )
    state = ShardedState(
        stage=sharded.stage,
        num_ranks=sharded.partition.num_ranks,
        rank=sharded.rank,
        pieces=sharded.saved_pieces(),
        values={},
        sharded_state={},
        replicated_state={},
        groups=[
            {**saved, "params": [name for name, _ in named]}
            for saved, named in zip(options, sharded.named_groups(optimizer), strict=True)
        ],
    )
    for name, own in state["pieces"].items():
        length = own["stop"] - own["start"]
        state["values"][name] = _padded(tensors[MODEL + name], length)
        start = f"{OPTIMIZER}{name}."
        keys = [saved.removeprefix(start) for saved in tensors if saved.startswith(start)]
        keys = [key for key in keys if "." not in key]
        if keys:
            state["sharded_state"][name], state["replicated_state"][name] = {}, {}
        for key in keys:
            value = tensors[start + key]
            is_number = key == "step" or value.numel() != tensors[MODEL + name].numel()
            if is_number:
                state["replicated_state"][name][key] = value.reshape(())
            else:
                state["sharded_state"][name][key] = _padded(value, length)
    load_sharded_state_dict(state, sharded, optimizer)


def _padded(values: torch.Tensor, length: int) -> torch.Tensor:
    """The values with zeros up to `length`: rows of padding are in no checkpoint."""
    return torch.nn.functional.pad(values, (0, length - values.numel()))
