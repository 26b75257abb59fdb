"""State that the units of a model share while they run: which pass it is, which units come next, what is being reduced.

A forward pass begins and ends with the root. A backward pass begins where it first comes to a unit, and autograd tells
when it ends. In PyTorch this is in `FSDPState` and `FSDPCommContext`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from dtlearn.sharing.wrapping.module_hooks import in_backward_pass

from .prefetch import Prefetcher
from .sharded_bucket import Reduction


class RunningUnit(Protocol):
    """The verbs that a pass needs of a unit."""

    in_backward: bool
    reshard_after_forward: bool

    def unshard(self) -> None: ...
    def reshard(self) -> None: ...
    def post_backward(self) -> None: ...
    def reduce_gradients(self) -> list[Reduction]: ...
    def drop_gradients(self) -> None: ...
    def gets_gradients(self) -> bool: ...


class Passes:
    """The passes of one model.

    **Communication**: none of its own; it says when units unshard ahead, and when their reductions are waited for.
    **Memory**: one unit's gradients at a time, as one vector, while their reduction is under way.

    Args:
        units: of the model, the root first.
        prefetch: units that are unsharded ahead.
        begins: called when a forward pass begins.
        finish: called when all gradients of a backward pass are handed out.

    Attributes:
        sync: gradients of the forward passes that begin now are reduced in their backward pass.
        accumulates: this backward pass accumulates gradients of parameters; `torch.autograd.grad` does not.
        second_order: this backward pass goes through gradients of an earlier one, whose graph has parts of many units.
        awaits_backward: no backward pass has come since the last forward pass that keeps its graph.
    """

    def __init__(
        self,
        units: Sequence[RunningUnit],
        prefetch: int,
        *,
        begins: Callable[[], None],
        finish: Callable[[], None],
    ) -> None:
        self.units, self.root = units, units[0]
        self.sync, self.accumulates, self.second_order, self.awaits_backward = True, False, False, False
        self._prefetcher, self._begins, self._finish = Prefetcher(units, prefetch), begins, finish
        self._backward_runs = False
        self._reductions: list[Reduction] = []

    # Forward. A checkpoint that computes a unit once more, in the backward pass, is no forward pass.

    def forward_reaches(self, unit: RunningUnit) -> None:
        """A unit is about to unshard."""
        if unit is self.root and not in_backward_pass():
            self._forward_begins()

    def _forward_begins(self) -> None:
        if self._backward_runs:  # an error has ended the last backward pass
            for reduction in self._reductions:
                reduction.drop()
            self._reductions, self._backward_runs = [], False
        for unit in self.units:
            if unit.in_backward:
                unit.in_backward = False
                unit.drop_gradients()
            unit.reshard()
        self._begins()
        self._prefetcher.forward_begins()

    def prefetch_in_forward(self, unit: RunningUnit) -> None:
        """A unit is unsharded: begin with those that are expected after it."""
        if not in_backward_pass():
            for following in self._prefetcher.next_in_forward(unit):
                following.unshard()

    # Backward

    def backward_reaches(self) -> None:
        """A backward pass has come to a unit."""
        self.awaits_backward = False
        if not self._backward_runs:
            self._backward_runs, self.accumulates = True, False
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)
        self.accumulates = self.accumulates or any(unit.gets_gradients() for unit in self.units)

    def prefetch_in_backward(self, unit: RunningUnit) -> None:
        """A unit is unsharded: begin with those that the forward pass had before it."""
        for preceding in self._prefetcher.next_in_backward(unit):
            preceding.unshard()

    def reduce(self, unit: RunningUnit) -> None:
        """Begin to reduce a unit's gradients, when the reduction before has ended: each holds all of a unit's."""
        self._advance_reductions()
        self._reductions += unit.reduce_gradients()

    def _backward_ends(self) -> None:
        """Now the root is done, and each unit whose inputs need no gradient."""
        self.second_order = False
        for unit in reversed(self.units):
            unit.post_backward()
            unit.reshard()  # it may have been prefetched and not used
        while self._reductions:
            self._advance_reductions()
        self._finish()  # who reads the gradients now finds them there
        self._backward_runs = False

    def _advance_reductions(self) -> None:
        following = [reduction.finish() for reduction in self._reductions]
        self._reductions = [reduction for reduction in following if reduction is not None]
