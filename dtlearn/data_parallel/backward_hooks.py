"""Which backward pass is going on, and when it is over: what a wrapper must know to average gradients within it.

Autograd tells when one parameter's gradient is there, and lets a callback be queued for the end of the pass. Two
things make it harder. With `use_reentrant=True`, checkpointing runs a backward pass inside the backward pass, and the
end of the inner one is not the end: so the pass is met where it enters the model, at the outputs. And a pass can be
one that is not to be averaged: of a forward pass under `no_sync()`, or of the bare module.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn

from dtlearn.data_parallel.unused_parameters import tensors_in


class Owner(Protocol):
    """Who is told of a backward pass: that it begins, of each gradient, and that it has ended without an error."""

    def backward_begins(self, unused: Sequence[int]) -> None: ...
    def gradient_is_ready(self, number: int) -> None: ...
    def backward_ends(self) -> None: ...


class BackwardPass:
    """Tells its owner of those backward passes that are to be averaged.

    The hooks on the parameters go when this object goes, so that a model can be wrapped once more.

    Args:
        parameters: whose gradients count; `gradient_is_ready` gets the place in this list.
        owner: not kept alive.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], owner: Owner) -> None:
        self._owner = weakref.ref(owner)
        self._wanted = self._begun = False
        self._unused: Sequence[int] = ()
        self._task: int | None = None  # autograd's number of the pass whose end we will be told of
        me = weakref.ref(self)
        for number, parameter in enumerate(parameters):
            hook = parameter.register_post_accumulate_grad_hook(partial(_pass_on, me, number))
            weakref.finalize(self, hook.remove)

    def follow(self, outputs: Any, wanted: bool, unused: Sequence[int] = ()) -> None:
        """Say, after each forward pass that keeps its graph, whether backward from its outputs is to be averaged.

        Args:
            outputs: of the model.
            wanted: average; otherwise leave the gradients alone.
            unused: handed to the owner when the backward pass begins.
        """
        self._wanted, self._unused = wanted, unused
        self._begun, self._task = False, None  # an error may have ended the pass before
        if wanted:
            for tensor in tensors_in(outputs):
                if tensor.grad_fn is not None:
                    tensor.register_hook(partial(self._enters, unused))

    def _enters(self, unused: Sequence[int], _: torch.Tensor) -> None:
        """A backward pass has reached an output. `torch.autograd.grad` comes by here too, and brings no gradient."""
        if self._task != torch._C._current_graph_task_id():
            self._wanted, self._unused, self._begun = True, unused, False
            self._await_end()

    def _await_end(self) -> None:
        self._task = torch._C._current_graph_task_id()
        torch.autograd.Variable._execution_engine.queue_callback(self._is_over)

    def gradient_is_ready(self, number: int) -> None:
        owner = self._owner()
        if not self._wanted or owner is None:
            return
        if self._task is None:  # it came by no output that `tensors_in` knows
            self._await_end()
        if not self._begun:
            self._begun = True
            owner.backward_begins(self._unused)
        owner.gradient_is_ready(number)

    def _is_over(self) -> None:
        begun, self._begun, self._task = self._begun, False, None
        if begun:
            self._wanted = False  # the next one says so at its outputs; one of the bare module says nothing
            if (owner := self._owner()) is not None:
                owner.backward_ends()


def _pass_on(watcher: weakref.ref[BackwardPass], number: int, _: torch.Tensor) -> None:
    if (backward := watcher()) is not None:
        backward.gradient_is_ready(number)
