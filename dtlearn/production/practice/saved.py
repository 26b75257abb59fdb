"""What a check asks of saved states: whether ranks have the same in theirs, and what a new process knows of them."""

from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

_MOST_PARTS = 20  # of a list that is read part by part; longer ones are one value, such as the state of a generator


def alike_and_changed(first: Any, later: Any) -> list[str]:
    """Paths of the parts that are the same on all ranks, and are others than at first; [] on one rank.

    **Communication**: an all-gather of both, pickled.

    Args:
        first, later: two states of this rank, of different steps: dicts, lists and tuples with tensors and numbers.
    """
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, (dict(_parts(first)), dict(_parts(later))))
    before, own = states[dist.get_rank()]
    others = [theirs for at, (_, theirs) in enumerate(states) if at != dist.get_rank()]
    return [
        path
        for path, value in own.items()
        if others
        and all(path in theirs and _same(value, theirs[path]) for theirs in others)
        and not (path in before and _same(value, before[path]))
    ]


def _parts(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    pairs = [*state.items()] if isinstance(state, dict) else []
    if isinstance(state, list | tuple) and len(state) <= _MOST_PARTS:
        pairs = [*enumerate(state)]
    for key, value in pairs:
        yield from _parts(value, f"{path}[{key!r}]")
    if not pairs and path:
        yield path, state


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    return type(a) is type(b) and bool(a == b)


def defined_anew(answer: type) -> type:
    """The class that the text of its file defines, as a new process has it: without anything that the old one kept."""
    old = sys.modules[answer.__module__]
    module = types.ModuleType(answer.__module__)
    module.__file__ = file = str(old.__file__)
    exec(compile("".join(linecache.getlines(file)), file, "exec", dont_inherit=True), module.__dict__)
    new: type = module.__dict__[answer.__name__]
    return new
