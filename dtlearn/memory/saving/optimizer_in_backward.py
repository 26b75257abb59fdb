"""Optimizer in backward: each parameter is updated as soon as its gradient is there, and the gradient is freed.

An ordinary step holds the gradients of all parameters at the end of backward. Here only a few of them live at once.
The price: nothing that needs all gradients together, and one backward per update.

Source: PyTorch tutorial "How to save memory by fusing the optimizer step into the backward pass"; Lv et al., "Full
Parameter Fine-tuning for Large Language Models with Limited Resources" (LOMO), 2306.09782, has it for SGD.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.utils.hooks import RemovableHandle

_SECOND_GRADIENT = (
    "a parameter got a second gradient in this step, after it was updated with the first: call optimizer.step() "
    "after each backward(), as always. One update cannot have several backward passes (gradient accumulation), nor a "
    "reentrant checkpoint around one of two uses of a tied parameter: use an ordinary optimizer"
)
_NO_CLIPPING = (
    "the norm of all gradients is known when the last one is there, and by then the others are applied and gone: clip "
    "each gradient by itself in a hook (parameter.register_hook), or use an ordinary optimizer"
)
_NO_SCALER = (
    "a loss scaler divides the gradients by its scale and looks for overflow after backward(), and by then they are "
    "applied, scaled as they were: the parameters are wrong now. Use bfloat16, which needs no scaler, or an ordinary "
    "optimizer"
)


class OptimizerInBackward:
    """Any optimizer of torch that keeps its state by parameter, but stepping inside `backward()`.

    The loop stays as it is:

        optimizer = OptimizerInBackward(torch.optim.AdamW(model.parameters()))
        loss.backward()  # updates the parameters
        optimizer.step()  # ends the step: there is nothing left to update
        optimizer.zero_grad()

    Learning-rate schedulers and checkpoints take `optimizer.inner`, the optimizer that was given. A parameter that is
    frozen is updated in backward once it is not. One that is added later, with `inner.add_param_group`, is updated by
    the first `step()` after that, and in backward from then on.

    **Communication**: none, and none may be left to do. DDP averages a gradient after this hook has
    applied it, each rank its own: the replicas would part, without an error.
    **Memory**: of the gradients, those of the operation that is running, such as a linear layer's
    weight and bias, in place of all. With Adam in float32 that is 12 bytes per parameter, in place of
    16. The peak falls by less where it lies at the start of backward: few gradients are there then.

    Args:
        inner: its parameters are updated by every backward pass from now on.

    Attributes:
        inner, state, param_groups: the optimizer, and its own.

    Raises:
        ValueError: an optimizer that needs a closure (L-BFGS); a parameter that has a gradient, or a hook of this kind
            already (a second `OptimizerInBackward`, this course's DDP).
    """

    _step_supports_amp_scaling = True  # torch's scaler then calls `step` in any case, which can say what is wrong

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        _require_usable(inner)
        self.inner = inner
        self._updated = set[torch.Tensor]()
        self._handles: dict[torch.Tensor, RemovableHandle] = {}
        for parameter, index in self._new_parameters():
            self._handles[parameter] = register_hook(parameter, self._hook(index))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.inner,)  # a copy has hooks of its own, on the parameters of its own optimizer

    def _new_parameters(self) -> list[tuple[torch.Tensor, int]]:
        """Parameters without a hook, and the indices of their groups."""
        groups = enumerate(self.inner.param_groups)
        parameters = [(parameter, index) for index, group in groups for parameter in group["params"]]
        return [(parameter, index) for parameter, index in parameters if parameter not in self._handles]

    def _hook(self, index: int) -> Callable[[torch.Tensor], None]:
        def update(parameter: torch.Tensor) -> None:
            if parameter in self._updated:
                raise RuntimeError(_SECOND_GRADIENT)
            self._updated.add(parameter)
            step_one(self.inner, index, parameter)
            parameter.grad = None  # before backward makes the next one

        return update

    def step(self) -> None:
        """End the step: every parameter may be updated again. Those that are new in the optimizer are updated now.

        Raises:
            ValueError: a new parameter has a hook, see above.
            RuntimeError: torch's `GradScaler` calls it (this course's refuses, too: it finds no gradient).
        """
        if hasattr(self, "found_inf"):
            raise RuntimeError(_NO_SCALER)
        for parameter, index in self._new_parameters():
            _require_no_hook(parameter)
            self._handles[parameter] = register_hook(parameter, self._hook(index))
            if parameter.grad is not None:
                step_one(self.inner, index, parameter)
                parameter.grad = None
        self._updated.clear()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the inner optimizer's; no gradient is left to free."""
        self.inner.zero_grad(set_to_none)

    def clip_grad_norm_(self, max_norm: float) -> NoReturn:
        """Refused. `torch.nn.utils.clip_grad_norm_` would find no gradient, return 0 and clip nothing.

        Raises:
            RuntimeError: always, with the reason.
        """
        raise RuntimeError(_NO_CLIPPING)

    def remove(self) -> None:
        """Remove the hooks: from now on `backward()` only makes gradients, and `inner` is an ordinary optimizer."""
        for handle in self._handles.values():
            handle.remove()

    @property
    def state(self) -> defaultdict[torch.Tensor, Any]:
        """The one of the inner optimizer."""
        return self.inner.state

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The one of the inner optimizer."""
        return self.inner.param_groups


def register_hook(parameter: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> RemovableHandle:
    """Run the hook when the gradient is there; also of a parameter that is frozen now, which torch refuses."""
    requires_grad = parameter.requires_grad
    parameter.requires_grad_(True)
    handle: RemovableHandle = parameter.register_post_accumulate_grad_hook(hook)
    parameter.requires_grad_(requires_grad)
    return handle


def step_one(optimizer: torch.optim.Optimizer, index: int, parameter: torch.Tensor) -> None:
    """`optimizer.step()` as if this parameter were the only one, with the options of group `index`."""
    groups = optimizer.param_groups
    group = groups[index]  # looked up each time: `load_state_dict` makes new groups
    parameters = group["params"]
    optimizer.param_groups, group["params"] = [group], [parameter]
    try:
        optimizer.step()
    finally:
        optimizer.param_groups, group["params"] = groups, parameters


def _require_usable(optimizer: torch.optim.Optimizer) -> None:
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("L-BFGS evaluates the loss several times, with all gradients: it cannot step in backward")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if any(parameter.grad is not None for parameter in parameters):
        raise ValueError("a parameter has a gradient that would be added to the next one: call zero_grad() first")
    for parameter in parameters:
        _require_no_hook(parameter)


def _require_no_hook(parameter: torch.Tensor) -> None:
    if getattr(parameter, "_post_accumulate_grad_hooks", None):
        raise ValueError(
            "a parameter has a hook that runs when its gradient is there: two updates would not know of each other, "
            "and a gradient that DDP still has to average would be applied before that"
        )
