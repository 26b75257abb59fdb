"""A model cut into stages, each a module of its own, whose parameters have the names that they have in the whole model.

A model is a chain of links: of a GPT the embedding, each block and the head; of an `nn.Sequential` its modules. Stage s
is the links `boundaries[s]` to `boundaries[s + 1]`, the last one not included: (0, 3, 6) cuts 6 links into two stages.

Shapes in this file: as in `dtlearn.models.gpt`.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import torch
from torch import nn

from dtlearn.models import GPT, GPTConfig

from .partition.boundaries import check_boundaries
from .runner.gradients import Tied
from .runner.preconditions import require_tied


class ChainOfLinks(Protocol):
    """What can be cut as a GPT is: `GPT` itself, and `ParallelGPT`, each of whose links is divided over ranks."""

    @property
    def config(self) -> GPTConfig: ...
    @property
    def embedding(self) -> nn.Module: ...
    @property
    def blocks(self) -> nn.ModuleList: ...
    @property
    def head(self) -> nn.Module: ...


class GPTStage(nn.Module):
    """Consecutive links of a GPT. The names of its parameters, and so its `state_dict`, are those of the whole model.

    Args:
        model: the whole model; the stage has its modules, not copies of them.
        first, end: the links `first` to `end - 1`; link 0 is the embedding, the last one is the head.
    """

    def __init__(self, model: ChainOfLinks, first: int, end: int) -> None:
        super().__init__()
        num_blocks = len(model.blocks)
        self.embedding = model.embedding if first == 0 else None
        numbers = range(max(first, 1) - 1, min(end - 1, num_blocks))
        self.blocks = nn.ModuleDict({str(number): model.blocks[number] for number in numbers})
        self.head = model.head if end == num_blocks + 2 else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T) int64 in the first stage, (B, T, C) in the others, to (B, T, C); in the last one to (B, T, V)."""
        if self.embedding is not None:
            x = self.embedding(x)  # (B, T, C)
        for block in self.blocks.values():
            x = block(x)  # (B, T, C)
        return x if self.head is None else self.head(x)


def split_gpt(model: ChainOfLinks | GPTConfig, boundaries: Sequence[int]) -> list[nn.Module]:
    """Cut a GPT into stages.

    Where the LM head has the weight of the token embedding and the two are in different stages, each has a copy. The
    ranks have to add up the two gradients: give `tied_embedding` to the runner.

    **Memory**: the whole model is in this process until the stages of other ranks are let go.

    Args:
        model: the stages have its modules; but for a tied head, which is copied. Of sizes, a new model is made.
        boundaries: for L blocks from 0 to L + 2, ascending; see above.

    Returns:
        A module for each stage.

    Raises:
        ValueError: boundaries that do not fit, as when there are more stages than links.
    """
    model = GPT(model) if isinstance(model, GPTConfig) else model
    check_boundaries(boundaries, len(model.blocks) + 2)
    stages = [GPTStage(model, first, end) for first, end in pairwise(boundaries)]
    if model.config.tie_embeddings and len(stages) > 1:
        stages[-1].head = copy.deepcopy(model.head)
    return list(stages)


def tied_embedding(config: GPTConfig, num_stages: int) -> Tied:
    """Where `split_gpt` leaves copies of one parameter, as the runner takes it; () where there are none."""
    if not config.tie_embeddings or num_stages == 1:
        return ()
    return (0, "embedding.token.weight"), (num_stages - 1, "head.projection.weight")


def split_sequential(model: nn.Sequential, boundaries: Sequence[int], *, tied: Tied = ()) -> list[nn.Module]:
    """Cut an `nn.Sequential` into stages, each an `nn.Sequential` whose modules keep their names.

    Args:
        model: the stages have its modules, not copies of them.
        boundaries: for n modules from 0 to n, ascending; see above.
        tied: two stages with the name of a parameter that they share, as the runner takes it.

    Returns:
        A module for each stage.

    Raises:
        ValueError: boundaries that do not fit, as when there are more stages than modules; a parameter in several
            stages that is not `tied`.
    """
    check_boundaries(boundaries, len(model))
    links = [(name, module) for name, module in model._modules.items() if module is not None]
    stages: list[nn.Module] = [nn.Sequential(OrderedDict(links[first:end])) for first, end in pairwise(boundaries)]
    require_tied(stages, tied)
    return stages
