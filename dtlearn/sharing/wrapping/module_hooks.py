"""Where the computation of a module begins and ends: hooks on what goes into it and on what comes out of it."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from .outputs import tensors_in

_CONTAINERS = (torch.Tensor, Mapping, list, tuple, int, float, str, type(None))  # what `tensors_in` can look into


def in_backward_pass() -> bool:
    """Whether autograd runs a backward pass in this thread: a forward pass is then a checkpoint's second one."""
    return torch._C._current_graph_task_id() != -1


def watch_inputs(inputs: Any, kwargs: Any, left: Callable[[], None]) -> tuple[Any, Any]:
    """Have `left` called when a backward pass has computed the gradients of all inputs that require one.

    What else the inputs are used for does not count: the module gets views of them for itself. Tensors inside lists and
    other containers are not watched.

    Args:
        inputs, kwargs: of the forward pass.

    Returns:
        What the forward pass is to get in their place.
    """
    watched: list[torch.Tensor] = []

    def watch(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            return value
        watched.append(value.view_as(value))
        return watched[-1]

    inputs, kwargs = tuple(map(watch, inputs)), {name: watch(value) for name, value in kwargs.items()}
    missing = len(watched)

    def arrives(_: torch.Tensor) -> None:
        nonlocal missing
        missing -= 1
        if missing == 0:
            left()

    for tensor in watched:
        tensor.register_hook(arrives)
    return inputs, kwargs


def outputs_to_watch(outputs: Any, name: str) -> list[torch.Tensor]:
    """The tensors through which a backward pass enters a module.

    Raises:
        TypeError: there are none that can be found. Backward would compute with parameters that are not there.
    """
    tensors = [tensor for tensor in tensors_in(outputs) if tensor.grad_fn is not None]
    if not tensors and not isinstance(outputs, _CONTAINERS) and not is_dataclass(outputs):
        raise TypeError(
            f"{name} returned a {type(outputs).__name__}, in which no tensor can be found: return tensors, or "
            "lists, tuples, dictionaries or dataclasses of them"
        )
    return tensors


def guard_forward(
    module: nn.Module, check: Callable[[nn.Module], None], of_copies: Callable[[nn.Module], None] | None = None
) -> None:
    """Call `check(module)` before each run of the module's `forward`, however it is called; hooks miss `forward()`.

    A copy of the module, by `copy.deepcopy` or pickled, runs its own `forward`, after `of_copies(copy)` if that is
    given, a function of a module: it is not what was wrapped.
    """
    call_before(module, "forward", check, of_copies)


def call_before(
    module: nn.Module,
    name: str,
    action: Callable[[nn.Module], None],
    of_copies: Callable[[nn.Module], None] | None = None,
) -> None:
    """Call `action(module)` before each call of one of this module's methods, in place of an earlier action.

    Copies are as with `guard_forward`.
    """
    method = getattr(module, name)
    method = method.method if isinstance(method, _Preceded) else method  # a module that is wrapped once more
    setattr(module, name, _Preceded(module, method, action, of_copies))


class _Preceded:
    """A bound method with an action before it. A copy of its module gets the method, and an action for copies."""

    def __init__(
        self,
        module: nn.Module,
        method: Callable[..., Any],
        action: Callable[[nn.Module], None],
        of_copies: Callable[[nn.Module], None] | None,
    ) -> None:
        self.module, self.method, self.action, self.of_copies = module, method, action, of_copies
        functools.update_wrapper(self, method)

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        self.action(self.module)
        return self.method(*inputs, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.of_copies is None:
            return _itself, (self.method,)
        return _Preceded, (self.module, self.method, self.of_copies, self.of_copies)


def _itself(method: Callable[..., Any]) -> Callable[..., Any]:
    return method


def refuse_optimizers_of(parameters: Iterable[nn.Parameter]) -> RemovableHandle:
    """Let the step of any optimizer fail that was built over these parameters, which a model no longer has."""
    gone = {id(parameter): weakref.ref(parameter) for parameter in parameters}

    def check(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in gone and gone[id(parameter)]() is parameter:
                    raise RuntimeError(
                        "this optimizer was built before the model was sharded: it has the parameters of then, which "
                        "get no gradient any more. Build it over the sharded model's parameters()"
                    )

    return register_optimizer_step_pre_hook(check)
