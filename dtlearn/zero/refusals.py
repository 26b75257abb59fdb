"""Errors for what training on shards cannot do as the plain model does, and would do wrong without a word."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakIdKeyDictionary

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


CLIPPING = torch.nn.utils.clip_grad.__name__
_is_elsewhere = WeakIdKeyDictionary()  # parameter -> tells whether its gradient is in the shards now


class WholeParameter(nn.Parameter):
    """A parameter whose gradient goes to shards: torch's clipping, which would find none and clip nothing, is refused.

    Its copies are not.
    """

    @property
    def grad(self) -> torch.Tensor | None:
        """The gradient, as of any tensor; autograd does not come by here.

        Raises:
            RuntimeError: one of `torch.nn.utils.clip_grad_norm_` and its kind reads it, and it is in the shards.
        """
        gradient: torch.Tensor | None = _plain_grad.__get__(self)
        if gradient is None and sys._getframe(1).f_globals.get("__name__") == CLIPPING:
            is_elsewhere = _is_elsewhere.get(self)
            if is_elsewhere is not None and is_elsewhere():
                raise RuntimeError(
                    "after backward() the gradients are in the shards of all ranks, and none is in .grad: torch's "
                    "clipping would find a norm of 0. Call model.clip_grad_norm_(max_norm)"
                )
        return gradient

    @grad.setter
    def grad(self, gradient: torch.Tensor | None) -> None:
        _plain_grad.__set__(self, gradient)

    @grad.deleter
    def grad(self) -> None:
        _plain_grad.__delete__(self)


_plain_grad: Any = torch.Tensor.grad


def refuse_clipping(parameters: Iterable[nn.Parameter], is_elsewhere: Callable[[], bool | None]) -> None:
    """Refuse torch's clipping of these parameters' gradients, by whatever list of them, while they are in shards.

    Args:
        parameters: whole. A tensor of an own class is left as it is.
        is_elsewhere: whether their gradients are in the shards; asked whenever one is clipped.
    """
    for parameter in parameters:
        if type(parameter) in (nn.Parameter, WholeParameter):
            parameter.__class__ = WholeParameter  # the same object: the model and the learner's lists have it
            _is_elsewhere[parameter] = is_elsewhere
