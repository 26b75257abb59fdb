"""Ranks with fewer batches than others: those that are done take part in the calls of the rest until all are.

Without it the ranks that go on wait for gradients that never come. Source: `torch.distributed.algorithms.join.Join`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn


class Joinable(Protocol):
    """The methods that a wrapped model has for `Join`. (torch's own, of the same name, is a class to inherit.)"""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def join_with(self, join: Join | None) -> None:
        """Call `join.announce()` before each forward pass that will be averaged; None: no longer."""

    def average_over(self, count: int) -> None:
        """From now on divide the sums of gradients by `count`."""

    def shadow_step(self, source: int) -> None:
        """Make every call of a step of other ranks with nothing to give; what is broadcast comes from rank `source`."""

    def copy_from(self, rank: int) -> None:
        """Give every rank of the group the model of one."""


class Join:
    """`with model.join(): ...` around a training loop. Ranks that leave it early shadow the others.

    Every forward pass begins by telling who is still training. A rank that has no batches left adds zeros to every
    bucket; at the end the model of a rank that trained to the last goes to all, as the early ones missed its steps.
    (The state of their optimizers, such as momentum, does not.) Ranks may accumulate over different numbers of
    micro-batches: a step counts, and what is done under `no_sync()` is not told to anyone.

    **Communication**: one all-reduce of 4 N bytes per forward pass outside `no_sync()` on N ranks, and one at the end;
    then, if some rank was early, a broadcast of the model.
    **Memory**: those 4 N bytes; on a rank that is done, as many bytes of zeros as the buckets hold.

    Args:
        model: the wrapped model.
        divide_by_initial_world_size: True: gradients are divided by N throughout, so each sample weighs the same as in
            the steps before; False: by the number of ranks that still train, so each step's mean is that of its own
            samples.
        group: ranks that train together; None: all.
    """

    def __init__(
        self,
        model: Joinable,
        divide_by_initial_world_size: bool = True,
        *,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self._model = model
        self._fixed = divide_by_initial_world_size
        self._group = group
        self._size = dist.get_world_size(group)
        self._device = next(model.parameters()).device
        self._active: list[int] = []

    def __enter__(self) -> Join:
        self._model.join_with(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._model.join_with(None)
        if kind is None:
            last = self._active or list(range(self._size))
            while active := self._count(training=False):
                self._model.shadow_step(active[-1])
                last = active
            if len(last) < self._size:
                self._model.copy_from(last[-1])
        self._model.average_over(self._size)

    def announce(self) -> int:
        """Say that this rank trains on. Returns the last rank of the group that does so, the same one everywhere."""
        self._active = self._count(training=True)
        return self._active[-1]

    def _count(self, training: bool) -> list[int]:
        """Ranks of the group that are still training; every rank gets the same answer."""
        trains = torch.zeros(self._size, dtype=torch.int32, device=self._device)  # (N,)
        trains[dist.get_rank(self._group)] = int(training)
        dist.all_reduce(trains, group=self._group)
        active = [rank for rank, value in enumerate(trains.tolist()) if value]
        if active and not self._fixed:
            self._model.average_over(len(active))
        return active
