"""Roles of storages: those of a model, of its gradients and of its optimizer.

A storage may be several things at once, or one after the other: a gradient is first what some operation returned. So it
collects uses, and `category` says at the end what it was.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .origins import unwrap
from .storage_ledger import plain_tensors, tensors_in


class Use:
    """Uses of a storage. Plain numbers: an enum's `&` and `|` take ten times as long, for every tensor."""

    PARAMETER = 1
    GRADIENT = 2  # some parameter's `.grad`
    STATE = 4  # of the optimizer
    BUFFER = 8  # of the model
    INPUT = 16  # given to the ledger as one
    MET = 32  # no operation that the ledger saw made it: it was there before
    SAVED = 64  # for the backward pass
    SENT = 128  # an argument or result of an operation that communicates


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


@functools.cache
def category(uses: int) -> str:
    """The category of a storage with these uses."""
    return next((name for use, name in CATEGORY_OF.items() if use & uses == use), "temporaries")


USUAL = (torch.Tensor, nn.Parameter)


class Marked(Protocol):
    """The note that the ledger keeps of a storage."""

    uses: int


Marker = Callable[[torch.Tensor, int, str | None], Marked]


class Roles:
    """Knows a model and its optimizer, without keeping either alive, and marks their storages.

    Attributes:
        is_current: whether nothing happened since the last scan; whoever sees an operation sets it to False.

    Args:
        model, optimizer: None: the ledger was given none.
        mark: called with a tensor, what it is, and the module that it belongs to, None: that is not known yet.

    Raises:
        ValueError: a parameter or buffer is on the meta device.
    """

    def __init__(self, model: nn.Module | None, optimizer: torch.optim.Optimizer | None, mark: Marker) -> None:
        self._model = weakref.ref(unwrap(model)) if model is not None else nothing
        self._optimizer = weakref.ref(optimizer) if optimizer is not None else nothing
        self._mark = mark
        self._arriving: dict[int, Marked] = {}  # by the parameter's id
        self._backward_pass = -1
        self.is_current = False
        for module_name, name, tensor, _ in model_tensors(self._model()):
            if tensor.is_meta:
                full_name = f"{module_name}.{name}".lstrip(".")
                raise ValueError(
                    f"{full_name} is on the meta device: it has a shape and no memory, so there is nothing to count. "
                    "model.to_empty(device=...) gives it memory"
                )

    def open(self, stack: contextlib.ExitStack) -> None:
        """Mark what is there, and gradients and state as they come, until the stack is closed."""
        self.scan()
        model, optimizer = self._model(), self._optimizer()
        parameters = [tensor for *_, tensor, use in model_tensors(model) if use == Use.PARAMETER]
        for parameter in dict.fromkeys([*parameters, *trained(optimizer)]):
            if parameter.requires_grad:
                stack.callback(parameter.register_hook(self._gradient_hook(weakref.ref(parameter))).remove)
        # Of any optimizer: one may be inside another.
        stack.callback(register_optimizer_step_pre_hook(lambda *_: self.scan_again()).remove)
        stack.callback(register_optimizer_step_post_hook(lambda *_: self.scan()).remove)

    def scan_again(self) -> None:
        """As `scan`, which takes milliseconds, if anything happened since. Phases begin where others end."""
        if not self.is_current:
            self.scan()

    def scan(self) -> None:
        """Mark what hangs on the model and on the optimizer now."""
        model, optimizer = self._model(), self._optimizer()
        owners = dict[int, tuple[torch.Tensor, str]]()  # by id: torch's own hash is slow
        for owner, _, tensor, use in model_tensors(model):
            owners[id(tensor)] = tensor, owner
            self._mark_parts(tensor, use, owner)
        for parameter in trained(optimizer):
            if id(parameter) not in owners:  # beside a model, a master weight: ZeRO counts it as optimizer state, too
                owners[id(parameter)] = parameter, ""
                self._mark_parts(parameter, Use.PARAMETER if model is None else Use.STATE, "")
        for key, (parameter, owner) in owners.items():
            arrived = self._arriving.pop(key, None)
            if parameter.grad is not None:
                gradients = self._mark_parts(parameter.grad, Use.GRADIENT, owner)
                if arrived is not None and arrived not in gradients:  # it was copied, into DDP's bucket for instance
                    arrived.uses &= ~Use.GRADIENT
        for parameter, state in optimizer.state.items() if optimizer is not None else ():
            owner = owners[id(parameter)][1] if id(parameter) in owners else ""
            for tensor in tensors_in(state):
                self._mark_parts(tensor, Use.STATE, owner)
        # Autograd's other callbacks may come after ours, and change gradients where no operation is seen.
        self.is_current = torch._C._current_graph_task_id() == -1

    def _gradient_hook(self, reference: weakref.ref[torch.Tensor]) -> Callable[[torch.Tensor], None]:
        def arrives(gradient: torch.Tensor) -> None:
            """Autograd is about to make this the gradient of the parameter. A hook may take it off again at once."""
            parameter = reference()
            if parameter is not None and parameter.grad is None:
                for marked in self._mark_parts(gradient, 0, None):
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

    def _mark_parts(self, tensor: torch.Tensor, use: int, module: str | None) -> list[Marked]:
        return [self._mark(part, use, module) for part in parts_of(tensor)]


def nothing() -> None:
    """A reference to nothing."""


def model_tensors(model: nn.Module | None) -> Iterator[tuple[str, str, torch.Tensor, int]]:
    """Parameters and buffers of a model, tied ones once: name of the module, name, tensor, use."""
    modules = list(model.named_modules()) if model is not None else []  # once: it takes the most time here
    seen = set[int]()
    for kind, use in (("_parameters", Use.PARAMETER), ("_buffers", Use.BUFFER)):
        for module_name, module in modules:
            for name, tensor in getattr(module, kind).items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield module_name, name, tensor, use


def trained(optimizer: torch.optim.Optimizer | None) -> Iterator[torch.Tensor]:
    """The parameters in the groups of an optimizer."""
    for group in optimizer.param_groups if optimizer is not None else ():
        yield from group["params"]


def parts_of(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """The tensors that hold the memory of this one: of a DTensor its local one, of a sparse one indices and values."""
    if type(tensor) in USUAL or not is_traceable_wrapper_subclass(tensor):
        return plain_tensors(tensor)
    named = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    # In some versions of torch a DTensor's mesh is named, too.
    return [part for inner in named if isinstance(inner, torch.Tensor) for part in parts_of(inner)]
