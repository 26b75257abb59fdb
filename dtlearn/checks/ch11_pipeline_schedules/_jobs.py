"""How the exercises of this chapter draw the jobs that an answer is given, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dtlearn.grading import Case, Given

Job = dict[str, Any]  # what one run of an answer is given, by name


def numbers(g: torch.Generator) -> Callable[[int, int], int]:
    """A function that draws a whole number, from its first argument to one below its second."""
    return lambda low, high: int(torch.randint(low, high, (), generator=g))


def shuffled(case: Case, jobs: Sequence[Any], g: torch.Generator) -> Given:
    """The same jobs on every rank: the first in its place, the others in an order by chance."""
    first, *rest = jobs
    return [{"jobs": [first, *(rest[k] for k in torch.randperm(len(rest), generator=g).tolist())]}] * case.world_size
