"""What training on shards cannot do as the plain model does, and would do wrong without a word: errors that say so."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

# Their update of one element depends on others: of the matrix, or of the whole model.
LOOK_AT_MATRICES = (torch.optim.Muon, torch.optim.Adafactor)
LOOK_AT_EVERYTHING = (torch.optim.LBFGS,)


def refuse_steps(parameters: Iterable[nn.Parameter], check: Callable[[], None]) -> RemovableHandle:
    """Check every step of an optimizer over these shards, whoever has built it.

    Args:
        parameters: the shards, which are kept alive by others.
        check: called before a step in which none of them has a gradient; it may raise.

    Raises (in the optimizer's step):
        ValueError: the optimizer looks at more than one element at a time.
    """
    shards = {id(parameter): weakref.ref(parameter) for parameter in parameters}

    def before_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
        updated = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        shard = shards.get(id(updated[0])) if updated else None
        if shard is None or shard() is not updated[0]:
            return
        name = type(optimizer).__name__
        if isinstance(optimizer, LOOK_AT_EVERYTHING):
            raise ValueError(f"{name} looks at all parameters together: its state cannot be divided")
        if isinstance(optimizer, LOOK_AT_MATRICES):
            raise ValueError(
                f"{name} looks at whole matrices, and a shard may end inside one: take ZeroRedundancyOptimizer with "
                "layout='whole tensors'"
            )
        if all(parameter.grad is None for parameter in updated):
            check()

    return register_optimizer_step_pre_hook(before_step)
