"""The hooks of a parameter whose gradient autograd does not make: a sharded one gets it from a reduction."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn


def has_hooks(parameter: nn.Parameter) -> bool:
    """Return whether hooks are registered for the gradient of this parameter."""
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)


def accumulate(parameter: nn.Parameter, gradient: torch.Tensor) -> None:
    """Add to a parameter's gradient as autograd does, with the parameter's hooks before and after it."""
    for hook in list((parameter._backward_hooks or {}).values()):
        changed = hook(gradient)
        gradient = gradient if changed is None else changed
    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
    for hook in list((parameter._post_accumulate_grad_hooks or {}).values()):
        hook(parameter)


def refuse_hooks(parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse parameters with hooks that would be lost with them, since the model gets others.

    Raises:
        ValueError: one of them, by name, has a hook.
    """
    for name, parameter in parameters.items():
        if has_hooks(parameter):
            raise ValueError(
                f"{name} has a gradient hook, which would be lost, since sharding replaces the parameter: register it "
                "on the sharded parameter, when the model is sharded. It gets this rank's part of the mean gradient"
            )
