"""Checkpoints that do not depend on the number of ranks: whole ones, and parts that are cut anew.

A rank saves its part with what is needed to put the parts together: which of how many it is, and the sizes of the whole
model. Everything here but `local_state` and `load_local_state` needs no ranks.

    whole = merge_states(load_states("checkpoint"))       # GPT's parameters: gpt.load_state_dict(whole)
    states = split_state(whole, config, 4)                # for 4 ranks
    reshard_files("checkpoint", "checkpoint_for_4", 4)    # both, from files to files, a part at a time

What has the shapes of the parameters is divided as they are: Adam's moments, say, as `{name: exp_avg}`.

What is read from which part is `dtlearn.sharing.resharding`.

Source: Megatron-LM's `tools/checkpoint/`, which does so for its models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

import torch

from dtlearn.models import GPTConfig
from dtlearn.sharing.resharding import Piece, even_part, plan_reads, read_into, whole_piece

from .attention.heads import divide_heads
from .gpt import BY_VOCABULARY, ParallelGPT, whole_shapes

_COLUMNS = r"attention\.(query|key|value)\.(weight|bias)|feed_forward\.up\.(weight|bias)"
_ROWS = r"attention\.output\.weight|feed_forward\.down\.weight"


class LocalState(TypedDict):
    """The state that one rank saves.

    Attributes:
        num_ranks, rank: the split, and whose part this is.
        config: of the whole model, as `GPTConfig(**config)`.
        values: by parameter, this rank's part.
    """

    num_ranks: int
    rank: int
    config: dict[str, Any]
    values: dict[str, torch.Tensor]


def gpt_split_dims(config: GPTConfig) -> dict[str, int | None]:
    """The dim along which each parameter of a `ParallelGPT` is divided, by name: `split_dims` without ranks.

    **Communication** and **Memory**: none.

    Args:
        config: of the whole model.
    """
    dims: dict[str, int | None] = {}
    for name in whole_shapes(config):
        is_by_columns = name in BY_VOCABULARY or re.search(f"({_COLUMNS})$", name)
        dims[name] = 0 if is_by_columns else 1 if re.search(f"({_ROWS})$", name) else None
    return dims


@torch.no_grad()
def split_state(whole: Mapping[str, torch.Tensor], config: GPTConfig, num_ranks: int) -> list[LocalState]:
    """The parts of all ranks of a whole model's parameters.

    **Communication**: none. **Memory**: the whole model once more, and replicated parameters t times.

    Args:
        whole: by name, such as `dict(gpt.named_parameters())`; no reference to it is kept.
        config: of the whole model.
        num_ranks: t.

    Raises:
        ValueError: t does not divide the heads, or these are not the parameters of such a model.
    """
    _require_shapes({name: full.shape for name, full in whole.items()}, config)
    return reshard([LocalState(num_ranks=1, rank=0, config=asdict(config), values=dict(whole))], num_ranks)


def _require_shapes(shapes: Mapping[str, torch.Size], config: GPTConfig) -> None:
    wanted = whole_shapes(config)
    for name in dict.fromkeys([*wanted, *shapes]):
        if wanted.get(name) != shapes.get(name):
            there, here = (tuple(s[name]) if name in s else "missing" for s in (shapes, wanted))
            raise ValueError(f"these are not the parameters of the whole model: {name} is {there}, not {here}")


def _pieces(
    shapes: Mapping[str, torch.Size], dims: Mapping[str, int | None], num_ranks: int, rank: int, *, with_copies: bool
) -> dict[str, Piece]:
    """List the pieces of a rank; `with_copies`: those of replicated parameters on each rank and not on the first only.

    A vocabulary that is not divided evenly is padded; padding is in no piece.
    """
    pieces = {}
    for name, shape in shapes.items():
        if (dim := dims[name]) is not None:
            pieces[name] = even_part(shape, dim, num_ranks, rank)
        else:
            pieces[name] = whole_piece(shape) if with_copies or rank == 0 else Piece(tuple(shape), ())
    return pieces


def _cut(states: Sequence[LocalState], num_ranks: int, rank: int) -> LocalState:
    """One rank's part, of parts of another split, all of them and in order."""
    config = GPTConfig(**states[0]["config"])
    shapes, dims = whole_shapes(config), gpt_split_dims(config)
    saved = [_pieces(shapes, dims, state["num_ranks"], state["rank"], with_copies=False) for state in states]
    wanted = _pieces(shapes, dims, num_ranks, rank, with_copies=True)
    values = {}
    for name, reads in plan_reads(saved, wanted).items():
        parts, shape = [state["values"][name] for state in states], list(shapes[name])
        if (dim := dims[name]) is not None:
            shape[dim] = -(-shape[dim] // num_ranks)
        values[name] = parts[0].new_zeros(shape)  # rows of padding stay zeros
        read_into(values[name], reads, parts)
    return LocalState(num_ranks=num_ranks, rank=rank, config=states[0]["config"], values=values)


def _require_heads(states: Sequence[LocalState], num_ranks: int) -> None:
    num_heads = states[0]["config"]["num_heads"]
    divide_heads(num_heads, num_heads, num_ranks)  # 4C features, too, then


@torch.no_grad()
def merge_states(states: Sequence[LocalState]) -> dict[str, torch.Tensor]:
    """The parameters of the whole model, by name, of the parts of all ranks: without padding.

    What is replicated is taken from the first rank.

    **Communication**: none. **Memory**: the whole model.

    Args:
        states: of all ranks that saved, in any order.

    Raises:
        ValueError: a rank's part is missing, comes twice, or is of another split.
    """
    return _cut(_in_order(states), 1, 0)["values"]


def reshard(states: Sequence[LocalState], num_ranks: int) -> list[LocalState]:
    """The parts for another number of ranks.

    **Communication**: none. **Memory**: the parts: the whole model, and replicated parameters t times.

    Args:
        states: of all ranks that saved, in any order.
        num_ranks: t of those that will load.

    Raises:
        ValueError: as `merge_states` and `split_state`.
    """
    states = _in_order(states)
    _require_heads(states, num_ranks)
    return [_cut(states, num_ranks, rank) for rank in range(num_ranks)]


def _in_order(states: Sequence[LocalState]) -> list[LocalState]:
    if not states:
        raise ValueError("the parts of all ranks that saved are needed; got none")
    sizes, ranks = {state["num_ranks"] for state in states}, sorted(state["rank"] for state in states)
    if any(state["config"] != states[0]["config"] for state in states):
        raise ValueError("parts of several models: their configs differ")
    if len(sizes) > 1:
        raise ValueError(f"parts of several splits: saved by {' and by '.join(map(str, sorted(sizes)))} ranks")
    if ranks != list(range(states[0]["num_ranks"])):
        raise ValueError(f"{states[0]['num_ranks']} ranks saved, and these are the parts of ranks {ranks}")
    return sorted(states, key=lambda state: state["rank"])


# On a rank.


@torch.no_grad()
def local_state(model: ParallelGPT) -> LocalState:
    """This rank's part of a model, to be saved.

    **Communication**: none. **Memory**: a copy of the part.

    Args:
        model: whose parameters are taken; a tied one once.
    """
    values = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    return LocalState(num_ranks=model.num_ranks, rank=model.rank, config=asdict(model.config), values=values)


@torch.no_grad()
def load_local_state(model: ParallelGPT, state: LocalState) -> None:
    """Give a model the part that this rank saved, or that was cut for it.

    **Communication**: none. **Memory**: nothing more.

    Args:
        model: changed in place; an optimizer may hold its parameters.
        state: of this rank, and of as many ranks.

    Raises:
        ValueError: it is the part of another rank, another split, or another model.
    """
    if (state["num_ranks"], state["rank"]) != (model.num_ranks, model.rank):
        raise ValueError(
            f"this is the part of rank {state['rank']} of {state['num_ranks']}, and this is rank {model.rank} of "
            f"{model.num_ranks}: each rank loads its own part, and reshard() cuts the parts for another number of ranks"
        )
    for name, here in asdict(model.config).items():
        if name != "dropout" and state["config"][name] != here:
            raise ValueError(f"this is a part of another model: {name} is {state['config'][name]} there, {here} here")
    for name, parameter in model.named_parameters():
        parameter.copy_(state["values"][name])


# Files.


def save_state(state: LocalState, folder: str | Path) -> Path:
    """Write one rank's part, as `rank1_of4.pt`; each rank calls it.

    **Communication**: none. **Memory**: nothing more.

    Args:
        state: from `local_state`.
        folder: made if it is not there; the same for all ranks.

    Returns:
        The file.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    file = Path(folder) / f"rank{state['rank']}_of{state['num_ranks']}.pt"
    torch.save(state, file)
    return file


def load_states(folder: str | Path) -> list[LocalState]:
    """The parts of all ranks that saved into a folder, in the order of the ranks.

    **Communication**: none. **Memory**: tensors are read from the files when they are looked at.

    Args:
        folder: as for `save_state`.

    Raises:
        ValueError: there is none, or some are missing, or of several splits.
    """
    files = sorted(Path(folder).glob("rank*_of*.pt"))
    if not files:
        raise ValueError(f"{folder} has no part of a checkpoint: files such as rank0_of2.pt")
    states: list[LocalState] = [torch.load(file, mmap=True, weights_only=True, map_location="cpu") for file in files]
    return _in_order(states)


def reshard_files(source: str | Path, target: str | Path, num_ranks: int) -> list[Path]:
    """Cut the checkpoint in one folder for another number of ranks, into another folder.

    **Communication**: none; one process does it. **Memory**: one part; of the files, what is read for it.

    Args:
        source: what `save_state` wrote.
        target: another folder.
        num_ranks: t of those that will load.

    Returns:
        The new files.

    Raises:
        ValueError: the folders are one, or as `load_states` and `split_state`.
    """
    if Path(source).resolve() == Path(target).resolve():
        raise ValueError(
            f"{target} has the parts that are read: parts of two splits in one folder cannot be told apart"
        )
    states = load_states(source)
    _require_heads(states, num_ranks)
    return [save_state(_cut(states, num_ranks, rank), target) for rank in range(num_ranks)]
