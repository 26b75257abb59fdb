"""Loss scaling with a constant: the way before the dynamic scaler, and, with a scale of 1, no scaling at all.

Source: Micikevicius et al., "Mixed Precision Training", 1710.03740, section 3.2: a constant from 8 to 32,768, chosen so
that its product with the largest gradient stays below 65,504, the largest number of float16.
"""

from __future__ import annotations

import math
from typing import Any

import torch


class StaticScaler:
    """`GradScaler` without its judgement: the loss times S, gradients divided by S, and every step is taken.

    After an overflow the weights are infinite or NaN, for good. `StaticScaler(1)` does not scale at all:
    then small gradients become 0 where the backward pass goes through float16.

    **Communication**: none. **Memory**: none.

    Args:
        scale: S, above 0.

    Raises:
        ValueError: a scale that is not above 0, or not finite.
    """

    def __init__(self, scale: float) -> None:
        if not 0 < scale < math.inf:
            raise ValueError(f"the scale must be positive and finite; got {scale}")
        self._scale = float(scale)
        self._unscaled: set[torch.optim.Optimizer] = set()

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times S, in float32 if it is a float16 number."""
        return loss * torch.tensor(self._scale, dtype=torch.float32, device=loss.device)

    @torch.no_grad()
    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the optimizer's gradients by S, in place: before clipping, or `step` does it."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(1 / self._scale)
        self._unscaled.add(optimizer)

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step` with unscaled gradients, whatever they are."""
        if optimizer not in self._unscaled:
            self.unscale_(optimizer)
        self._unscaled.discard(optimizer)
        return optimizer.step(*args, **kwargs)

    def update(self) -> None:
        """Nothing: the scale is a constant."""

    def get_scale(self) -> float:
        return self._scale


def largest_static_scale(largest_gradient: float, largest: float = 65_504.0) -> float:
    """The largest power of two that keeps a gradient below the largest number of a format.

    Args:
        largest_gradient: the largest magnitude that the gradients of this model reach, unscaled; above 0. Also those of
            activations: they pass through the format too.
        largest: of the format; float16's.

    Raises:
        ValueError: a gradient that is not positive and finite.
    """
    if not 0 < largest_gradient < math.inf:
        raise ValueError(f"the largest gradient must be positive and finite; got {largest_gradient}")
    _, exponent = math.frexp(largest / largest_gradient)  # the ratio is 2^exponent times 0.5 to 1
    return 2.0 ** (exponent - 1)
