"""Whether a wrong value is one that some rank was given: which it is, and which it should be. Runs in the judge."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..check import Given


def mistaken_for(expected: Any, got: Any, given: Given, near: Callable[[Any, Any], bool]) -> str:
    """A sentence if the first wrong tensor is what some rank was given; "" otherwise. `near`: as in `compare`."""
    for (path, right), (_, have) in zip(_tensors(expected, "the result"), _tensors(got, "the result"), strict=False):
        if near(right, have):
            continue
        wrong, wanted = _origin(have, given), _origin(right, given)
        should = f"; it should be {wanted}" if wanted else ", as that rank was given it"
        return f"{path} is {wrong}{should}" if wrong else ""
    return ""


def _origin(value: torch.Tensor, given: Given) -> str:
    """ "rank 1's parts[2]"; "" if no rank was given it, or more than one thing is the same."""
    names = [
        f"rank {rank}'s {path}"
        for rank, inputs in enumerate(given)
        for name, content in inputs.items()
        for path, tensor in _tensors(content, name)
        if tensor.shape == value.shape and tensor.dtype == value.dtype and torch.equal(tensor, value)
    ]
    return names[0] if len(names) == 1 and value.numel() else ""


def _tensors(value: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from _tensors(part, f"{path}[{i}]")
