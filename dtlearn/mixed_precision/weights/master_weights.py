"""Master weights: the optimizer updates float32 copies of 16-bit parameters, and the model gets them rounded.

A bfloat16 number near 1 has neighbours 2^-8 below and 2^-7 above it. An update of less than half of that is rounded
away, however often it comes; in a float32 copy such updates add up.

Source: Micikevicius et al., "Mixed Precision Training", 1710.03740, section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from .parameter_groups import checked_groups, update_dtype


class MasterWeights(torch.optim.Optimizer):
    """Any optimizer of torch, working on float32 masters of the parameters that are float16 or bfloat16.

    A loop stays as it is, if it does not scale the loss. With a scaler, ours or torch's, one call is added, as the
    gradients have to be float32 before they are divided by the scale:

        scaler.scale(loss).backward()
        optimizer.copy_gradients_to_masters()
        scaler.unscale_(optimizer)  # and clip: parameters are those of optimizer.param_groups
        scaler.step(optimizer)

    `param_groups` and `state` are those of the inner optimizer: its parameters are the masters, so schedulers,
    `GradScaler` and clipping see float32. A parameter that is float32 or float64 is its own master, in the same memory.

    **Communication**: none. Average the model's gradients before `step`, as DDP does.
    **Memory**, bytes per 16-bit parameter with Adam: weight 2, gradient 2, master 4, moments 8; that is 16, the count
    of the ZeRO paper (1910.02054), and what is there between steps. During a step the master's gradient makes it 20, as
    Megatron-LM counts for 16-bit gradients. (Its 18 are 16-bit weights whose only gradient is float32.)
    With float32 parameters and autocast it is 16 too: 4, 4 and 8; and 2 more while a weight's cast copy is in use.

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
        self._model: list[nn.Parameter] = [parameter for group in groups for parameter in group["params"]]
        self.inner = optimizer_class([with_masters(group) for group in groups], **options)
        self._share()
        self._note_versions()

    @property
    def pairs(self) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
        """Each parameter of the model, and its master."""
        masters = [master for group in self.inner.param_groups for master in group["params"]]
        if len(masters) != len(self._model):
            raise ValueError(
                f"expected a master for each of {len(self._model)} parameters, but got {len(masters)}: add parameters "
                "with add_param_group() of MasterWeights, not with that of its inner optimizer"
            )
        return zip(self._model, masters, strict=True)

    @torch.no_grad()
    def copy_gradients_to_masters(self) -> None:
        """Give each master its parameter's gradient in float32, or none if it has none."""
        for parameter, master in self.pairs:
            gradient = parameter.grad
            master.grad = None if gradient is None else gradient.to(master.dtype)

    @torch.no_grad()
    def copy_masters_to_model(self) -> None:
        """Round each master to its parameter's format, to nearest."""
        for parameter, master in self.pairs:
            parameter.copy_(master)
        self._note_versions()

    @torch.no_grad()
    def copy_model_to_masters(self) -> None:
        """Call it after `model.load_state_dict`: otherwise the next step would bring the old weights back."""
        for parameter, master in self.pairs:
            master.copy_(parameter)
        self._note_versions()

    def step(self, closure: Callable[[], Any] | None = None, **options: Any) -> Any:
        """Update the masters, round them into the model, and let go of the masters' gradients.

        Args:
            closure: computes the loss and its gradients anew; called as often as the optimizer wants it.
            options: handed on to the inner optimizer's `step`.

        Returns:
            The closure's first value; None without one.

        Raises:
            RuntimeError: a weight of the model was changed since the last step, and its master was not.
        """

        def from_masters() -> Any:
            assert closure is not None
            self.copy_masters_to_model()
            loss = closure()
            self.copy_gradients_to_masters()
            return loss

        self._require_unchanged()
        if closure is None and all(master.grad is None for _, master in self.pairs):
            self.copy_gradients_to_masters()  # nobody did so before unscaling or clipping
        loss = self.inner.step(**options) if closure is None else self.inner.step(from_masters, **options)
        self.copy_masters_to_model()
        for _, master in self.pairs:
            master.grad = None
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of the model and of the masters."""
        for parameter, master in self.pairs:
            master.grad = None
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = torch.zeros_like(parameter.grad)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train these parameters of the model too."""
        (group,) = checked_groups([param_group])
        if set(map(id, group["params"])) & set(map(id, self._model)):
            raise ValueError("some of these parameters are in a group of this optimizer already")
        self.inner.add_param_group(with_masters(group))
        self._model += group["params"]
        self._note_versions()

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's state, and "masters", one float32 tensor per parameter.

        A checkpoint needs the masters: from the model's 16 bits they cannot be had again.
        """
        masters = [master.detach() for _, master in self.pairs]
        return {**self.inner.state_dict(), "masters": masters}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state, and the weights with it: the model gets the masters, rounded.

        Args:
            state_dict: of `MasterWeights`; or of the plain optimizer: then the masters stay as they are.

        Raises:
            ValueError: it does not fit the parameters.
        """
        masters = state_dict.get("masters")
        own = [master for _, master in self.pairs]
        if masters is not None and [m.shape for m in masters] != [m.shape for m in own]:
            raise ValueError(
                f"this state has {len(masters)} masters, whose shapes do not fit these {len(own)} parameters: load it "
                "into an optimizer of the same model, with the same groups"
            )
        self.inner.load_state_dict({key: value for key, value in state_dict.items() if key != "masters"})
        for master, saved in zip(own, masters or own, strict=True):
            master.copy_(saved)
        self.copy_masters_to_model()
        self._share()

    def _share(self) -> None:
        """Show the inner optimizer's groups and state as this one's; it has new ones when a state is loaded."""
        inner = self.inner
        super().__setstate__({"defaults": inner.defaults, "state": inner.state, "param_groups": inner.param_groups})

    def __getstate__(self) -> dict[str, Any]:
        return {"inner": self.inner, "_model": self._model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy, or what was saved with torch.save: of the masters and of the model's parameters, too."""
        self.__dict__.update(state)
        self._share()
        for parameter, master in self.pairs:
            if parameter.dtype == master.dtype:
                master.data = parameter.data  # its own master: one memory, as before
        self._note_versions()

    def _note_versions(self) -> None:
        self._versions = [parameter._version for parameter in self._model]

    def _require_unchanged(self) -> None:
        for (parameter, master), version in zip(self.pairs, self._versions, strict=True):
            if parameter._version != version and not torch.equal(parameter, master.to(parameter.dtype)):
                raise RuntimeError(
                    "a weight of the model was changed since the last step, and its master was not, so this step would "
                    "bring the old weight back: call copy_model_to_masters() after model.load_state_dict(), after DDP "
                    "has wrapped the model, and after any other change"
                )


def with_masters(group: dict[str, Any]) -> dict[str, Any]:
    """The parameter group with masters in place of the model's parameters."""
    return {**group, "params": [master_of(parameter) for parameter in group["params"]]}


def master_of(parameter: nn.Parameter) -> nn.Parameter:
    """A float32 copy of a parameter with fewer bits; of any other one, a parameter in the same memory."""
    return nn.Parameter(parameter.detach().to(update_dtype(parameter)), requires_grad=parameter.requires_grad)
