"""Weights of 16 bits without masters: each update is computed in float32, and its result rounded to nearest.

It is the naive way: an update of less than half the distance to the next number of the format changes nothing.
`stochastic_update` and `compensated_update` are the same but for how a result is written.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .parameter_groups import checked_groups, update_dtype


class RoundedUpdate(torch.optim.Optimizer):
    """Any optimizer of torch, on 16-bit parameters, with its arithmetic and its state in float32.

    One parameter at a time has its weight and gradient in float32, while it is updated. So the inner optimizer has to
    update each parameter by itself; one that looks at all of them together (LBFGS) would be given one at a time.

    `param_groups` hold the model's parameters; a scheduler's rates are given to the inner optimizer at each step.

    **Communication**: none. **Memory**, bytes per 16-bit parameter with Adam: weight 2, gradient 2, moments 8; that
    is 12. During a step, 8 bytes per element of the largest parameter.

    Args:
        params: parameters, named parameters or groups, as for any optimizer.
        optimizer_class: such as `torch.optim.AdamW`.
        options: of the optimizer, such as `lr`.

    Raises:
        TypeError: a parameter is not a floating-point tensor.
        ValueError: as the optimizer does.
    """

    def __init__(self, params: Any, optimizer_class: type[torch.optim.Optimizer], **options: Any) -> None:
        groups = checked_groups(params)
        self.inner = optimizer_class([_with_stand_ins(group) for group in groups], **options)
        super().__init__(groups, self.inner.defaults)
        self.state = self.inner.state  # its keys are the stand-ins

    def read(self, parameter: nn.Parameter) -> torch.Tensor:
        """The weight in float32, to be updated; a new tensor."""
        return parameter.to(update_dtype(parameter), copy=True)

    def write(self, parameter: nn.Parameter, updated: torch.Tensor) -> None:
        """Store an updated weight in the parameter's format."""
        parameter.copy_(updated)  # rounds to nearest

    @torch.no_grad()
    def step(self, closure: None = None, **options: Any) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient.

        Args:
            closure: none.
            options: handed on to the inner optimizer's `step`.

        Raises:
            RuntimeError: there is a closure.
        """
        if closure is not None:
            raise RuntimeError("step() takes no closure: it updates one parameter at a time. Compute the loss before")
        self._copy_options(self.param_groups, self.inner.param_groups)
        for group, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            for parameter, stand_in in zip(group["params"], inner["params"], strict=True):
                if parameter.grad is not None:
                    stand_in.data = self.read(parameter)
                    stand_in.grad = parameter.grad.to(stand_in.dtype)
                    self.inner.step(**options)  # the others have no gradient now, and are left alone
                    self.write(parameter, stand_in.data)
                    stand_in.data, stand_in.grad = _no_memory(parameter), None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train these parameters too."""
        super().add_param_group(param_group)
        if len(self.param_groups) > len(self.inner.param_groups):  # not while this optimizer is made
            self.inner.add_param_group(_with_stand_ins(self.param_groups[-1]))

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's, as if it had been given the model's parameters in float32."""
        self._copy_options(self.param_groups, self.inner.param_groups)
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state, also one of the plain optimizer or of `MasterWeights`, whose masters are not used."""
        self.inner.load_state_dict({name: state_dict[name] for name in ("state", "param_groups")})
        self.state = self.inner.state
        self._copy_options(self.inner.param_groups, self.param_groups)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy, or what was saved with torch.save: of the model's parameters, too."""
        super().__setstate__(state)
        for group, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            for parameter, stand_in in zip(group["params"], inner["params"], strict=True):
                stand_in.data = _no_memory(parameter)  # the copy of one has the memory of all its elements

    @staticmethod
    def _copy_options(source: list[dict[str, Any]], target: list[dict[str, Any]]) -> None:
        """Give groups the learning rates, and all else but the parameters, of others."""
        if len(source) != len(target):
            raise ValueError(
                f"expected as many parameter groups as the inner optimizer has, but got {len(source)} and "
                f"{len(target)}: add parameters with add_param_group() of this optimizer, not of its inner one"
            )
        for group, other in zip(source, target, strict=True):
            other.update({name: value for name, value in group.items() if name != "params"})


def _no_memory(parameter: nn.Parameter) -> torch.Tensor:
    """Zeros, shaped as the parameter, that take the memory of one: every element is the same one."""
    return torch.zeros((), dtype=update_dtype(parameter), device=parameter.device).expand(parameter.shape)


def _with_stand_ins(group: dict[str, Any]) -> dict[str, Any]:
    """The parameter group for the inner optimizer: parameters without values, in the model's order."""
    return {**group, "params": [nn.Parameter(_no_memory(parameter)) for parameter in group["params"]]}
