"""Which backward pass is going on, and when it is over: what a wrapper must know to average gradients within it.

Autograd tells when one parameter's gradient is there, and lets a callback be queued for the end of the pass. Two
things make it harder. With `use_reentrant=True`, checkpointing runs a backward pass inside the backward pass, and the
end of the inner one is not the end: so the pass is met where it enters the model, at the outputs. And a pass can be
one that is not to be averaged: of a forward pass under `no_sync()`, or of the bare module.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from .outputs import tensors_in


class BackwardPass:
    """Tells of those backward passes that are to be averaged: each beginning, each gradient, each end.

    The hooks on the parameters go when this object goes, so that a model can be wrapped once more. A copy of the
    wrapper, by `copy.deepcopy` or pickled, has hooks of its own on its own parameters.

    Args:
        parameters: whose gradients count.
        ends: called when a backward pass has ended without an error. All three are bound methods; their object is not
            kept alive.
        begins: called before its first gradient, with what `follow` was given as `unused`.
        ready: called for each gradient, as soon as it is complete, with its place among `parameters`.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        ends: Callable[[], None],
        begins: Callable[[Sequence[int]], None] | None = None,
        ready: Callable[[int], None] | None = None,
    ) -> None:
        self._parameters = parameters
        self._ends = weakref.WeakMethod(ends)
        self._begins = weakref.WeakMethod(begins) if begins else None
        self._ready = weakref.WeakMethod(ready) if ready else None
        self._wanted = self._begun = False
        self._unused: Sequence[int] = ()
        self._task: int | None = None  # autograd's number of the pass whose end we will be told of
        me = weakref.ref(self)
        for number, parameter in enumerate(parameters):
            hook = parameter.register_post_accumulate_grad_hook(partial(_pass_on, me, number))
            weakref.finalize(self, hook.remove)

    def __reduce__(self) -> tuple[Any, ...]:
        methods = (self._ends, self._begins, self._ready)
        return _rebuild, (self._parameters, *(method and method() for method in methods))

    def follow(self, outputs: Any, wanted: bool, unused: Sequence[int] = ()) -> None:
        """Say, after each forward pass that keeps its graph, whether backward from its outputs is to be averaged.

        Args:
            outputs: of the model.
            wanted: average; otherwise leave the gradients alone.
            unused: handed to `begins` when the backward pass begins.
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

    def _gradient_is_ready(self, number: int) -> None:
        if not self._wanted:
            return
        if self._task is None:  # it came by no output that `tensors_in` knows
            self._await_end()
        if not self._begun:
            self._begun = True
            _call(self._begins, self._unused)
        _call(self._ready, number)

    def _is_over(self) -> None:
        begun, self._begun, self._task = self._begun, False, None
        if begun:
            self._wanted = False  # the next one says so at its outputs; one of the bare module says nothing
            _call(self._ends)


def _rebuild(parameters: Sequence[nn.Parameter], ends: Any, begins: Any, ready: Any) -> BackwardPass:
    return BackwardPass(parameters, ends=ends, begins=begins, ready=ready)


def _pass_on(watcher: weakref.ref[BackwardPass], number: int, _: torch.Tensor) -> None:
    if (backward := watcher()) is not None:
        backward._gradient_is_ready(number)


def _call(method: weakref.WeakMethod[Callable[..., None]] | None, *args: Any) -> None:
    if method is not None and (call := method()) is not None:
        call(*args)
