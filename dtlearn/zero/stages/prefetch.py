"""Choose the units that are gathered before they are used: those that came next in the last pass.

A model does not say in which order its modules run, so the order is that of the last pass; the first forward pass
expects the order of registration. A wrong guess gathers a unit too early, which takes memory and changes no result. But
all ranks have to guess alike, since all have to gather the same units in the same order. They do, if they all run the
same modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

U = TypeVar("U")


class Prefetcher(Generic[U]):
    """Looks `depth` units ahead, in a forward pass and in the backward pass, which takes the units in reversed order.

    **Communication**: none.
    **Memory**: each unit that it names is gathered beside the one in use: `depth` more units.

    Args:
        units: in the order that the first forward pass is expected to have.
        depth: 0: nothing is gathered ahead.

    Raises:
        ValueError: a negative depth.
    """

    def __init__(self, units: Sequence[U], depth: int) -> None:
        if depth < 0:
            raise ValueError(f"prefetch is a number of units, 0 or more; got {depth}")
        self._depth = depth
        self._expected = list(units)
        self._seen: list[U] = []  # in this forward pass so far

    def forward_begins(self) -> None:
        """A forward pass begins; the last one says what it will be like."""
        self._expected, self._seen = self._seen or self._expected, []

    def next_in_forward(self, unit: U) -> list[U]:
        """This unit is used now in the forward pass: those that are expected after it."""
        self._seen.append(unit)
        place = len(self._seen)
        return self._expected[place : place + self._depth]

    def next_in_backward(self, unit: U) -> list[U]:
        """This unit is used now in the backward pass: those that the forward pass had before it, the nearest first."""
        if unit not in self._seen:
            return []
        place = len(self._seen) - 1 - self._seen[::-1].index(unit)
        return self._seen[max(0, place - self._depth) : place][::-1]
