"""Weights of 16 bits without masters: updated weights are rounded up or down by chance, so that small updates count.

Source: Zamirai et al., "Revisiting BFloat16 Training", 2010.06192, which trains with stochastic rounding of the weights
beside Kahan summation (`compensated_update`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..formats import find_format
from ..rounding import round_stochastically
from .rounded_update import RoundedUpdate


class StochasticUpdate(RoundedUpdate):
    """`RoundedUpdate` with stochastic rounding: an update u between neighbours d apart is taken with chance u / d.

    The mean over many steps is right; each weight has noise of up to one unit in its last place, a step.

    Replicas have to draw the same numbers, or they drift apart: give all ranks a generator with one seed.

    **Communication**: none. **Memory**, bytes per 16-bit parameter with Adam: 12, as `RoundedUpdate`; while a parameter
    is updated, some tensors of its shape in float64.

    Args:
        params, optimizer_class, options: as `RoundedUpdate`.
        generator: of the random numbers, on the parameters' device; None: torch's default.

    Raises:
        TypeError, ValueError: as `RoundedUpdate`.
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[torch.optim.Optimizer],
        *,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        super().__init__(params, optimizer_class, **options)
        self.generator = generator

    def write(self, parameter: nn.Parameter, updated: torch.Tensor) -> None:
        if updated.dtype == parameter.dtype:
            parameter.copy_(updated)  # nothing to round
        else:
            parameter.copy_(round_stochastically(updated, find_format(parameter.dtype), self.generator))
