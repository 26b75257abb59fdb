"""What `on_rank` of a check imports: groups, parameters with gradients, refusals, what stays in memory. Runs on the
ranks."""

from __future__ import annotations

import gc
import re
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

_groups: dict[tuple[int, ...], Any] = {}
_made_in: list[weakref.ref[Any]] = []  # the default group that they are parts of


def own_group(groups: Sequence[Sequence[int]]) -> dist.ProcessGroup | None:
    """The group of this rank among these lists of ranks; None, all ranks, if there are no lists.

    All ranks call it, in the same order. A group is made once for as long as the default group lives.
    """
    if not _made_in or _made_in[0]() is not dist.group.WORLD:
        _groups.clear()  # weak: a default group that is held would not end
        _made_in[:] = [weakref.ref(dist.group.WORLD)]
    own = None
    for ranks in groups:
        if tuple(ranks) not in _groups:
            _groups[tuple(ranks)] = dist.new_group(list(ranks))
        own = _groups[tuple(ranks)] if dist.get_rank() in ranks else own
    return own


def parameters(gradients: Sequence[torch.Tensor | None], value: float = 1.0) -> list[torch.nn.Parameter]:
    """Parameters that are all `value`, with copies of these gradients; of None one of four elements without one."""
    made = [torch.nn.Parameter(torch.full((4,) if g is None else g.shape, value)) for g in gradients]
    for parameter, gradient in zip(made, gradients, strict=True):
        parameter.grad = None if gradient is None else gradient.clone()
    return made


def refusal(call: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    """How a call refuses what it is given: "a ValueError that names 4 and 3", the numbers in the order of the message;
    "a TypeError"; "nothing was raised"."""
    try:
        call(*args, **kwargs)
    except ValueError as error:
        numbers = re.findall(r"\d+", str(error))
        return f"a ValueError that names {' and '.join(numbers) or 'no number'}"
    except Exception as error:
        return f"a {type(error).__name__}"
    return "nothing was raised"


def refusal_naming(numbers: Sequence[int], call: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    """As `refusal`, where the message of a ValueError may have other numbers beside these: "a ValueError that names 5
    and 2" if it has them all."""
    said = refusal(call, *args, **kwargs)
    all_there = {str(number) for number in numbers} <= {*re.findall(r"\d+", said)}
    return f"a ValueError that names {' and '.join(map(str, numbers))}" if all_there else said


class _Summed(torch.autograd.Function):
    """Adds up over the ranks of a group, forward or backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, in_forward: bool) -> torch.Tensor:
        ctx.group = None if in_forward else group
        return _total(x, group) if in_forward else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gradient if ctx.group is None else _total(gradient, ctx.group), None, None


def summed_over(x: torch.Tensor, group: Any, in_forward: bool) -> torch.Tensor:
    """The g of chapter 12, or its f, which adds up in backward. Hand it over in a function of `on_rank`'s own."""
    result: torch.Tensor = _Summed.apply(x, group, in_forward)
    return result


def _total(x: torch.Tensor, group: Any) -> torch.Tensor:
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def has_own_memory(tensor: torch.Tensor, *others: torch.Tensor | None) -> bool:
    """Whether a tensor keeps no more memory than it needs, and none of these tensors'."""
    memory = tensor.untyped_storage()
    alone = all(one is None or one.untyped_storage().data_ptr() != memory.data_ptr() for one in others)
    return alone and memory.nbytes() == tensor.numel() * tensor.element_size()


def holds(whole: torch.Tensor, own: torch.Tensor, *roots: Any) -> bool:
    """Whether more than half of the numbers that `whole` has and `own` has not can be reached from these objects.

    Tensors are read with all of the memory that they keep. Objects of other modules than the answer's are left out:
    functions, classes and modules of torch and of the check lead everywhere.
    """
    foreign, reached, todo = _numbers(whole) - _numbers(own), set[float](), [*roots]
    seen: set[int] = set()
    while todo and len(seen) < 20_000:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            if one.device.type == "cpu" and one.layout == torch.strided:
                reached |= _numbers(torch.tensor([], dtype=one.dtype).set_(one.untyped_storage()))
            todo += vars(one).values()
        elif type(one).__name__ == "ndarray" and one.dtype.kind in "fiu":
            reached |= _numbers(torch.tensor(one.ravel().tolist(), dtype=torch.float64))
        elif isinstance(one, int | float):
            reached |= _numbers(torch.tensor(one, dtype=torch.float64))
        elif isinstance(one, types.FunctionType | type) and one.__module__ != "exercise":
            continue
        elif not isinstance(one, types.ModuleType):
            todo += gc.get_referents(one)
    return len(foreign & reached) > len(foreign) / 2


def _numbers(values: torch.Tensor) -> set[float]:
    return set(values.detach().flatten().double().float().tolist())
