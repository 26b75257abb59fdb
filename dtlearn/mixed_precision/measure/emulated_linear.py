"""Linear layers that round as a GPU's matrix multiplication of 16 bits does, at the speed of float32.

Inputs, weights and incoming gradients are rounded to the format, multiplied and summed in float32, and the results are
rounded again, as by Tensor Cores. (A processor without instructions for a format is slow in it.)
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..formats import Format, torch_dtype


class _RoundBothWays(torch.autograd.Function):
    """x rounded to a dtype and back; in backward the same for its gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        ctx.dtype = dtype
        return x.to(dtype).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        return dy.to(ctx.dtype).to(dy.dtype), None


def round_both_ways(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """x as a dtype holds it, in x's own dtype; its gradient is rounded in the same way."""
    rounded: torch.Tensor = _RoundBothWays.apply(x, dtype)
    return rounded


class EmulatedLinear(nn.Linear):
    """`nn.Linear` in a format of 16 bits, with weights and their gradients in float32, as under autocast.

    Args:
        in_features, out_features, bias: as in `nn.Linear`.
        fmt: the format.

    Raises:
        ValueError: torch has no dtype for it.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, fmt: Format) -> None:
        super().__init__(in_features, out_features, bias)
        self.dtype = torch_dtype(fmt)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., I) -> (..., O)."""
        x, weight = round_both_ways(x, self.dtype), round_both_ways(self.weight, self.dtype)
        bias = None if self.bias is None else round_both_ways(self.bias, self.dtype)
        return round_both_ways(F.linear(x, weight, bias), self.dtype)


def convert_to_emulated(module: nn.Module, fmt: Format) -> nn.Module:
    """Put an `EmulatedLinear` in the place of every `nn.Linear`; weights and biases stay the same objects.

    Returns:
        `module`, changed in place.
    """
    for name, layer in list(module.named_modules()):
        if type(layer) is nn.Linear:
            new = EmulatedLinear(layer.in_features, layer.out_features, False, fmt=fmt)
            new.weight, new.bias = layer.weight, layer.bias
            module.set_submodule(name, new)
    return module
