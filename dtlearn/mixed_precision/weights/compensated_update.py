"""Weights of 16 bits without masters: what rounding took from a weight is kept beside it, and added at the next step.

Sources: Kahan, "Further remarks on reducing truncation errors", 1965; for weights in bfloat16: Zamirai et al.,
"Revisiting BFloat16 Training", 2010.06192.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .rounded_update import RoundedUpdate


class CompensatedUpdate(RoundedUpdate):
    """`RoundedUpdate` with compensated (Kahan) summation: weight + compensation is the weight in about twice the bits.

    In bfloat16 a weight w loses updates below 2^-9 w; the pair loses those below about 2^-17 w. The model sees the
    weight only. The optimizer updates their sum in float32, where the paper has each operation in bfloat16.

    **Communication**: none. **Memory**, bytes per 16-bit parameter with Adam: weight 2, compensation 2, gradient 2,
    moments 8; that is 14. During a step, 8 bytes per element of the largest parameter, and temporaries as large.

    Args:
        params, optimizer_class, options: as `RoundedUpdate`.

    Raises:
        TypeError, ValueError: as `RoundedUpdate`.
    """

    def __init__(self, params: Any, optimizer_class: type[torch.optim.Optimizer], **options: Any) -> None:
        self.compensation: dict[nn.Parameter, torch.Tensor] = {}  # shaped as the parameter, in its format
        super().__init__(params, optimizer_class, **options)

    def read(self, parameter: nn.Parameter) -> torch.Tensor:
        weight = super().read(parameter)
        return weight + self.compensation[parameter] if parameter in self.compensation else weight

    def write(self, parameter: nn.Parameter, updated: torch.Tensor) -> None:
        parameter.copy_(updated)
        if updated.dtype != parameter.dtype:
            self.compensation[parameter] = (updated - parameter).to(parameter.dtype)

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's, and "compensation", a list with a tensor or None per parameter."""
        return {**super().state_dict(), "compensation": [self.compensation.get(p) for p in self._parameters()]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; without "compensation", as of another optimizer, it begins at 0."""
        super().load_state_dict(state_dict)
        parameters = self._parameters()
        saved = state_dict.get("compensation", [None] * len(parameters))
        pairs = zip(parameters, saved, strict=True)
        self.compensation = {p: values.to(p.device, copy=True) for p, values in pairs if values is not None}

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.param_groups for parameter in group["params"]]
