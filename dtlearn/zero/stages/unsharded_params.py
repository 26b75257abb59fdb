"""Whole parameters that say so when they are read while they have no memory.

A unit's whole parameters are freed when it is done, and autograd has what it saved of them back before it reads it. But
a model may keep one, or a view of one: `self.seen = self.weight[0]`. torch's operations do not look whether a tensor
has memory. On a processor the process ends with SIGSEGV, on a GPU the device is lost; with `fully_shard`, too. So each
function of torch that is given such a parameter from Python comes by here first, and so do views that it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

# What can be asked of a tensor without memory: its attributes, and what these functions tell or do.
DESCRIBES = {"__get__", "__set__", "__hash__", "__len__", "dim", "numel", "size", "stride"}
DESCRIBES |= {"data_ptr", "is_contiguous", "is_floating_point", "register_hook", "requires_grad_", "untyped_storage"}

as_plain = torch._C.DisableTorchFunctionSubclass  # `with as_plain():` for those who know whether there is memory


class Guarded:
    """State that a whole parameter and its views have in common.

    Attributes:
        memory: theirs; None: they are without elements.
    """

    memory: torch.UntypedStorage | None = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        with as_plain():
            memories = _memories_of((*args, *kwargs.values()) if kwargs else args)
            for memory in memories:
                if not memory.nbytes() and func.__name__ not in DESCRIBES:
                    raise RuntimeError(
                        f"{func.__name__}() of a weight, or of a view of one, that was kept when its unit was done: "
                        "its memory is freed. Keep a copy, .clone(); or read weights inside `with model.unsharded():`"
                    )
            if func.__name__ in ("numpy", "__array__"):  # torch frees nothing that an array has
                args = (args[0].clone(), *args[1:])
            return _guard(func(*args, **kwargs) if kwargs else func(*args), memories)


class UnshardedParameter(Guarded, nn.Parameter):
    """A whole parameter of stage 3, to be read while its unit computes: a view of memory that comes and goes."""

    def __init__(self, view: torch.Tensor, requires_grad: bool = True) -> None:
        memory = view.untyped_storage()
        self.memory = memory if memory.nbytes() else None  # without elements there is nothing to free


class UnshardedView(Guarded, torch.Tensor):
    """A view of one."""


def _memories_of(values: Iterable[Any]) -> list[torch.UntypedStorage]:
    """The memories of the guarded tensors among arguments, and in lists of them, as `torch.cat` takes."""
    memories = []
    for value in values:
        if isinstance(value, Guarded):
            if value.memory is not None:
                memories.append(value.memory)
        elif isinstance(value, list | tuple):
            memories += _memories_of(value)
    return memories


def _guard(result: Any, memories: Sequence[torch.UntypedStorage]) -> Any:
    """A result of torch; the views in it say from now on when they are read."""
    if type(result) is torch.Tensor:
        if torch._C._has_storage(result):
            own = result.untyped_storage()._cdata
            for memory in memories:
                if memory._cdata == own:
                    view: Any = result  # the object that autograd knows, and no node more in its graph
                    view.__class__, view.memory = UnshardedView, memory
    elif isinstance(result, list | tuple):
        for each in result:
            _guard(each, memories)
    elif isinstance(result, Iterator):  # of the rows
        return iter(_guard(list(result), memories))
    return result
