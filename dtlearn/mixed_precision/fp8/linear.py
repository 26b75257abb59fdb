"""A linear layer that multiplies in FP8: E4M3 forward, E5M2 for the gradients that come back.

    y  = x W^T + b         x and W in E4M3: more precision
    dx = dy W              dy in E5M2: more range
    dW = dy^T x

Shapes in this file: x (..., I), W (O, I), y and dy (..., O).

Weights and their gradients stay in float32, as master weights do. The products are those that a GPU computes: of 8-bit
numbers, summed in float32, and divided by both scales at the end. (H800 GPUs were found to keep about 14 bits of the
sums: DeepSeek-AI 2412.19437, section 3.3.2.)

Source: Micikevicius et al. 2209.05433, section 3; the formats are those of Transformer Engine's `HYBRID`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.function import once_differentiable

from ..casting.autocast import autocast
from ..formats import FP8_E4M3, FP8_E5M2, Format
from .scaling import CurrentScaling, DelayedScaling, Scaled

Cast = Callable[[torch.Tensor], Scaled]


def multiply(a: Scaled, b: Scaled) -> torch.Tensor:
    """a @ b in float32, also in an autocast block: (M, K) and (K, N) -> (M, N)."""
    with torch.autocast(a.values.device.type, enabled=False), autocast("cpu", enabled=False):
        product: torch.Tensor = a.values.float() @ b.values.float()
        return product / (a.scale * b.scale)


def transposed(a: Scaled) -> Scaled:
    """The transpose: (M, N) -> (N, M)."""
    return Scaled(a.values.t(), a.scale)


class _Fp8Product(torch.autograd.Function):
    """x W^T, where x, W and the gradient dy are cast before they are multiplied."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, cast_x: Cast, cast_w: Cast, cast_dy: Cast
    ) -> torch.Tensor:
        x8, w8 = cast_x(x.reshape(-1, x.shape[-1])), cast_w(weight)  # (tokens, I), (O, I)
        ctx.save_for_backward(*x8, *w8)  # 8 bits are what is kept for backward, too
        ctx.cast_dy = cast_dy
        y = multiply(x8, transposed(w8))
        return y.reshape(*x.shape[:-1], weight.shape[0]).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x8, w8 = Scaled(*ctx.saved_tensors[:2]), Scaled(*ctx.saved_tensors[2:])
        dy8 = ctx.cast_dy(dy.reshape(-1, dy.shape[-1]))  # (tokens, O)
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = multiply(dy8, w8).reshape(*dy.shape[:-1], w8.values.shape[1])
        if ctx.needs_input_grad[1]:
            dw = multiply(transposed(dy8), x8)
        return dx, dw, None, None, None


class Fp8Linear(nn.Linear):
    """`nn.Linear` with its three products in FP8.

    **Communication**, over `group`: with current scaling, three all-reduces (MAX) of 4 bytes in a training step, two
    forward and one backward; each blocks. With delayed scaling none in forward and backward, and 12 bytes of the one
    all-reduce of `update_scales(model)`, which has to be called after each step. All ranks must call the layer equally
    often.
    **Memory**: for backward, a byte for each element of x and W, and 4 for each scale. `nn.Linear` keeps x itself, 4
    bytes an element.

    Args:
        in_features, out_features, bias: as in `nn.Linear`.
        scaling: "current" or "delayed".
        history_length: steps that delayed scaling remembers.
        group: ranks that need the same scales; default the world. Without a process group, this process alone.

    Raises:
        ValueError: another `scaling`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        scaling: Literal["current", "delayed"] = "current",
        history_length: int = 16,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias)

        def cast_to(fmt: Format) -> nn.Module:
            if scaling == "current":
                return CurrentScaling(fmt, group=group)
            return DelayedScaling(fmt, history_length)

        if scaling not in ("current", "delayed"):
            raise ValueError(f'scaling must be "current" or "delayed", got {scaling!r}')
        self.scaling = scaling
        self.cast_x, self.cast_w, self.cast_dy = cast_to(FP8_E4M3), cast_to(FP8_E4M3), cast_to(FP8_E5M2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., I) -> (..., O)."""
        y: torch.Tensor = _Fp8Product.apply(x, self.weight, self.cast_x, self.cast_w, self.cast_dy)
        return y if self.bias is None else y + self.bias  # its gradient is the sum of dy before the cast

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scaling={self.scaling!r}"


def convert_to_fp8(
    module: nn.Module,
    *,
    skip: tuple[str, ...] = (),
    scaling: Literal["current", "delayed"] = "current",
    group: dist.ProcessGroup | None = None,
) -> nn.Module:
    """Put an `Fp8Linear` in the place of every `nn.Linear` of a model; weights and biases stay the same objects.

    Args:
        module: changed in place; itself no `nn.Linear`.
        skip: names of layers, as in `named_modules()`, that stay as they are, such as "head.projection": the last layer
            is usually left in higher precision.
        scaling, group: as for `Fp8Linear`.

    Returns:
        `module`.

    Raises:
        ValueError: a name in `skip` is no linear layer of this model, or a layer has a hook.
    """
    layers = module.named_modules(remove_duplicate=False)  # a layer that is there twice has two names
    linear = {name: layer for name, layer in layers if type(layer) is nn.Linear}
    if unknown := set(skip) - set(linear):
        raise ValueError(f"skip names {sorted(unknown)}, but the linear layers are {', '.join(linear)}")
    converted: dict[nn.Linear, Fp8Linear] = {}
    for name, layer in linear.items():
        if name in skip:
            continue
        if layer not in converted:
            converted[layer] = _in_place_of(layer, scaling, group)
        module.set_submodule(name, converted[layer])
    return module


def _in_place_of(
    layer: nn.Linear, scaling: Literal["current", "delayed"], group: dist.ProcessGroup | None
) -> Fp8Linear:
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks:
        raise ValueError(
            "a linear layer has a hook, which its Fp8Linear would not have: register hooks after convert_to_fp8()"
        )
    new = Fp8Linear(layer.in_features, layer.out_features, False, scaling=scaling, group=group)
    new.to(layer.weight.device).train(layer.training)
    new.weight, new.bias = layer.weight, layer.bias
    return new
