"""What storages are for: those of a model, of its gradients and of its optimizer.

A storage may be several things at once, or one after the other: a gradient is first what some operation returned. So it
collects uses, and `category` says at the end what it was.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from enum import IntFlag, auto
from typing import Protocol

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .origins import unwrap
from .storage_ledger import plain_tensors, tensors_in


class Use(IntFlag):
    """What a storage was used as."""

    PARAMETER = auto()
    GRADIENT = auto()  # some parameter's `.grad`
    STATE = auto()  # of the optimizer
    BUFFER = auto()  # of the model
    INPUT = auto()  # given to the ledger as one
    MET = auto()  # no operation that the ledger saw made it: it was there before
    SAVED = auto()  # for the backward pass
    SENT = auto()  # an argument or result of an operation that communicates


# The first that applies. What was there before and is sent is a bucket of a DDP that was built before.
CATEGORY_OF = {
    Use.PARAMETER: "parameters",
    Use.GRADIENT: "gradients",
    Use.STATE: "optimizer state",
    Use.BUFFER: "buffers",
    Use.INPUT: "inputs",
    Use.MET | Use.SENT: "communication",
    Use.MET: "inputs",
    Use.SAVED: "activations",
    Use.SENT: "communication",
}


def category(uses: Use) -> str:
    """The category of a storage with these uses."""
    return next((name for use, name in CATEGORY_OF.items() if use & uses == use), "temporaries")


class Marked(Protocol):
    """What the ledger keeps of a storage."""

    uses: Use


Mark = Callable[[torch.Tensor, Use, str | None], Marked]


class Roles:
    """Knows a model and its optimizer, without keeping either alive, and marks their storages.

    Args:
        model, optimizer: None: the ledger was given none.
        mark: called with a tensor, what it is, and the module that it belongs to, None: that is not known yet.

    Raises:
        ValueError: a parameter or buffer is on the meta device.
    """

    def __init__(self, model: nn.Module | None, optimizer: torch.optim.Optimizer | None, mark: Mark) -> None:
        self._model = weakref.ref(unwrap(model)) if model is not None else nothing
        self._optimizer = weakref.ref(optimizer) if optimizer is not None else nothing
        self._mark = mark
        self._arriving: dict[int, Marked] = {}  # by the parameter's id
        self._backward_pass = -1
        for name, tensor, _ in model_tensors(self._model()):
            if tensor.is_meta:
                raise ValueError(
                    f"{name} is on the meta device: it has a shape and no memory, so there is nothing to count. "
                    "model.to_empty(device=...) gives it memory"
                )

    def open(self, stack: contextlib.ExitStack) -> None:
        """Mark what is there, and gradients and state as they come, until the stack is closed."""
        self.scan()
        model, optimizer = self._model(), self._optimizer()
        parameters = [tensor for _, tensor, use in model_tensors(model) if use is Use.PARAMETER]
        for parameter in dict.fromkeys([*parameters, *trained(optimizer)]):
            if parameter.requires_grad:
                stack.callback(parameter.register_hook(self._gradient_hook(weakref.ref(parameter))).remove)
        for register in (register_optimizer_step_pre_hook, register_optimizer_step_post_hook):
            stack.callback(register(lambda *_: self.scan()).remove)  # of any optimizer: one may be inside another

    def scan(self) -> None:
        """Mark what hangs on the model and on the optimizer now."""
        model, optimizer = self._model(), self._optimizer()
        owners = dict[torch.Tensor, str]()
        for name, tensor, use in model_tensors(model):
            owners[tensor] = name.rpartition(".")[0]
            self._mark_parts(tensor, use, owners[tensor])
        for parameter in trained(optimizer):
            if parameter not in owners:  # beside a model, a master weight: ZeRO counts it as optimizer state, too
                owners[parameter] = ""
                self._mark_parts(parameter, Use.PARAMETER if model is None else Use.STATE, "")
        for parameter, owner in owners.items():
            arrived = self._arriving.pop(id(parameter), None)
            if parameter.grad is not None:
                gradients = self._mark_parts(parameter.grad, Use.GRADIENT, owner)
                if arrived is not None and arrived not in gradients:  # it was copied, into DDP's bucket for instance
                    arrived.uses &= ~Use.GRADIENT
        for parameter, state in optimizer.state.items() if optimizer is not None else ():
            for tensor in tensors_in(state):
                self._mark_parts(tensor, Use.STATE, owners.get(parameter, ""))

    def _gradient_hook(self, reference: weakref.ref[torch.Tensor]) -> Callable[[torch.Tensor], None]:
        def arrives(gradient: torch.Tensor) -> None:
            """Autograd is about to make this the gradient of the parameter. A hook may take it off again at once."""
            parameter = reference()
            if parameter is not None and parameter.grad is None:
                for marked in self._mark_parts(gradient, Use(0), None):
                    if not marked.uses & Use.GRADIENT:
                        marked.uses |= Use.GRADIENT
                        self._arriving[id(parameter)] = marked
            self._scan_after_backward()

        return arrives

    def _scan_after_backward(self) -> None:
        backward_pass = torch._C._current_graph_task_id()
        if backward_pass != self._backward_pass:
            self._backward_pass = backward_pass
            torch.autograd.Variable._execution_engine.queue_callback(self.scan)

    def _mark_parts(self, tensor: torch.Tensor, use: Use, module: str | None) -> list[Marked]:
        return [self._mark(part, use, module) for part in parts_of(tensor)]


def nothing() -> None:
    """A reference to nothing."""


def model_tensors(model: nn.Module | None) -> Iterator[tuple[str, torch.Tensor, Use]]:
    """Parameters and buffers of a model, tied ones once: name, tensor, use."""
    if model is not None:
        for name, parameter in model.named_parameters():
            yield name, parameter, Use.PARAMETER
        for name, buffer in model.named_buffers():
            yield name, buffer, Use.BUFFER


def trained(optimizer: torch.optim.Optimizer | None) -> Iterator[torch.Tensor]:
    """The parameters in the groups of an optimizer."""
    for group in optimizer.param_groups if optimizer is not None else ():
        yield from group["params"]


def parts_of(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that hold the memory of this one: of a DTensor its local one, of a sparse one indices and values."""
    if is_traceable_wrapper_subclass(tensor):
        for part in (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]):
            if isinstance(part, torch.Tensor):  # in some versions of torch a DTensor's mesh is named, too
                yield from parts_of(part)
    else:
        yield from plain_tensors(tensor)
