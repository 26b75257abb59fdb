"""Who may start a step, and when a step is complete: the rules, without a process and without a tensor.

A worker's *clock* is the number of its steps whose push has arrived. The rules look at the clocks alone, so that the
server and its simulation under a virtual clock follow the same ones; `progress.py` keeps the clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Clocks = Mapping[int, int]  # of the workers that still train: steps whose push has arrived


class Consistency(Protocol):
    """How far workers may run apart, and when their pushes are applied."""

    @property
    def together(self) -> bool:
        """True: the pushes of a step are one update, their weighted mean. False: each push is an update of its own."""

    def may_start(self, step: int, clocks: Clocks) -> bool:
        """Whether a worker may have parameters for this step of its own (it may still compute the one before it)."""

    def complete(self, clocks: Clocks) -> int:
        """Number of steps that need no further push. `clocks` holds one worker or more."""


@dataclass(frozen=True)
class Synchronous:
    """Bulk synchronous (BSP): a step starts when the step before it is complete.

    With backup workers a step is complete without the slowest `backup` pushes, and a push that comes later is dropped:
    its worker goes on with the step of the others. Source: Chen et al. 2016, arXiv 1604.00981.

    Args:
        backup: pushes that a step does not wait for; at least one is always waited for.

    Raises:
        ValueError: `backup` is negative.
    """

    backup: int = 0

    def __post_init__(self) -> None:
        if self.backup < 0:
            raise ValueError(f"backup is a number of workers, 0 or more; got {self.backup}")

    @property
    def together(self) -> bool:
        return True

    def may_start(self, step: int, clocks: Clocks) -> bool:
        return step <= self.complete(clocks)

    def complete(self, clocks: Clocks) -> int:
        return sorted(clocks.values())[min(self.backup, len(clocks) - 1)]


@dataclass(frozen=True)
class BoundedStaleness:
    """Stale synchronous parallel (SSP): the fastest worker is at most `bound` steps ahead of the slowest.

    The bound counts steps. In updates, of N workers that ask and wait, a push misses (N - 1) (2 s + 1) at most: each
    other worker may be s steps behind at the pull, and s steps and its push ahead when this one arrives. (One more is
    its own, pipelined.) A push is applied as it arrives. With a bound of 0 nobody may see half of a step, so that its
    pushes are applied together: that is `Synchronous()`. Source: Ho et al. 2013, "More Effective Distributed ML via a
    Stale Synchronous Parallel Parameter Server", section 2.

    Args:
        bound: steps, 0 or more; s in the paper.

    Raises:
        ValueError: `bound` is negative.
    """

    bound: int

    def __post_init__(self) -> None:
        if self.bound < 0:
            raise ValueError(f"bound is a number of steps, 0 or more; got {self.bound}")

    @property
    def together(self) -> bool:
        return self.bound == 0

    def may_start(self, step: int, clocks: Clocks) -> bool:
        return step - min(clocks.values()) <= self.bound

    def complete(self, clocks: Clocks) -> int:
        return min(clocks.values())


@dataclass(frozen=True)
class Asynchronous:
    """Nobody waits, and a push is applied as it arrives. Source: Dean et al. 2012, DistBelief's Downpour SGD."""

    @property
    def together(self) -> bool:
        return False

    def may_start(self, step: int, clocks: Clocks) -> bool:
        return True

    def complete(self, clocks: Clocks) -> int:
        return min(clocks.values())


def divided_by_staleness(staleness: int) -> float:
    """What the learning rate of a push is multiplied by: 1 if it is fresh or one update old, 1/2 if two, and so on.

    Source: Zhang et al. 2016, "Staleness-aware Async-SGD", arXiv 1511.05950.
    """
    return 1 / max(1, staleness)
