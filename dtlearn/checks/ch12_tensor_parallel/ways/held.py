"""Whether an answer still has the numbers of a whole weight, in whatever form; runs on the ranks, with `on_rank`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch

from dtlearn.grading import Check


def holds(whole: torch.Tensor, own: torch.Tensor, *roots: Any) -> bool:
    """Whether more than half of the numbers that `whole` has and `own` has not can be reached from these objects.

    Tensors are read with all of the memory that they keep. Objects of other modules than the answer's are left out:
    functions, classes and modules of torch and of the check lead everywhere.
    """
    import gc
    import types

    def numbers(values: Any) -> set[float]:
        return set(values.detach().flatten().double().float().tolist())

    foreign, reached, todo = numbers(whole) - numbers(own), set[float](), [*roots]
    floats: list[float] = []
    seen: set[int] = set()
    while todo and len(seen) < 20_000:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            if one.device.type == "cpu" and one.layout == torch.strided:
                reached |= numbers(torch.tensor([], dtype=one.dtype).set_(one.untyped_storage()))
            todo += vars(one).values()
        elif type(one).__name__ == "ndarray" and one.dtype.kind in "fiu":
            floats += one.ravel().tolist()
        elif isinstance(one, int | float):
            floats.append(one)
        elif isinstance(one, types.FunctionType | type) and one.__module__ != "exercise":
            continue
        elif not isinstance(one, types.ModuleType):
            todo += gc.get_referents(one)
    return len(foreign & (reached | numbers(torch.tensor(floats, dtype=torch.float64)))) > len(foreign) / 2


@dataclass(frozen=True)
class CheckOfMemory(Check):
    """A check whose `on_rank` calls `holds`."""

    def driver(self) -> str:
        """The text of `on_rank`, which the rank takes as it comes first, and that of `holds`."""
        return f"{super().driver()}\n\n{inspect.getsource(holds)}"
