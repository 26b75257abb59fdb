"""LARS: a learning rate of its own for each layer, so that no layer moves too far for its size.

With a large batch comes a large rate, and training diverges where the gradient is large against the weight: You et al.
measured ratios of norms that differ from layer to layer by two orders of magnitude. LARS makes each layer's step
proportional to the norm of its weight. A layer is here what it is in the paper's experiments: one parameter tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def trust_ratio(weight: torch.Tensor, update_norm: torch.Tensor, coefficient: float = 1.0) -> torch.Tensor:
    """coefficient |weight| / update_norm, (); 1 if a norm is 0: a bias that starts at 0 could never leave it.

    Args:
        weight: any shape.
        update_norm: ().
        coefficient: the share of its norm that the layer may move.
    """
    norm = weight.norm()
    return torch.where((norm > 0) & (update_norm > 0), coefficient * norm / update_norm, torch.ones_like(norm))


class LayerwiseOptimizer(torch.optim.Optimizer):
    """The base of LARS and LAMB: a step goes through the parameters, and each is updated on its own, by `_update`."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update. `closure`: computes the loss anew, as in torch's optimizers; its value is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        raise NotImplementedError("an optimizer of this kind says how one parameter is updated")


class LARS(LayerwiseOptimizer):
    """SGD with momentum and a local learning rate for each parameter (You, Gitman & Ginsburg 1708.03888, Algorithm 1).

    For each parameter w with gradient g:

        local = eta |w| / (|g| + wd |w|)
        v <- momentum v + lr local (g + wd w)
        w <- w - v

    The rate is inside v, so after a change of `lr` the old steps keep their size; `torch.optim.SGD` has it outside, and
    rescales them. `lr` is the global rate of the paper, whose schedule is the caller's (theirs falls as (1 - t/T)^2).

    Communication: none. Every rank has the same averaged gradients, so the norms are the same too. Where parameters
    are sharded, each norm needs an all-reduce.
    Memory: v, as large as the parameters.

    Args:
        params: parameters or groups; a group may have its own values of what follows.
        lr: global learning rate.
        momentum: 0 to 1.
        weight_decay: wd.
        trust_coefficient: eta: the share of its norm that a layer may move at `lr` = 1.
        exclude_bias_and_norm: parameters with fewer than two dimensions, which are those of biases and of norms, get
            plain SGD with momentum, without decay. The paper's algorithm does not exclude them; practice does.

    Raises:
        ValueError: a value is negative, or the momentum not below 1.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
        exclude_bias_and_norm: bool = False,
    ) -> None:
        if min(lr, weight_decay, trust_coefficient) < 0 or not 0 <= momentum < 1:
            raise ValueError(
                "lr, weight_decay and trust_coefficient must not be negative, and momentum be in [0, 1); got "
                f"{lr}, {weight_decay}, {trust_coefficient} and {momentum}"
            )
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
            "exclude_bias_and_norm": exclude_bias_and_norm,
        }
        super().__init__(params, defaults)

    def _update(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        w, g = parameter, gradient  # the paper's names
        excluded = group["exclude_bias_and_norm"] and w.dim() < 2
        decay = 0.0 if excluded else group["weight_decay"]
        direction = g + decay * w
        if not excluded:
            direction *= trust_ratio(w, g.norm() + decay * w.norm(), group["trust_coefficient"])
        state = self.state[w]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(w)
        state["velocity"].mul_(group["momentum"]).add_(direction, alpha=group["lr"])
        w -= state["velocity"]
