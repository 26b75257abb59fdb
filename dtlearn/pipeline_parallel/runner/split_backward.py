"""The backward pass in two parts: I, the gradient of the inputs, now; W, the gradients of the weights, later.

The stage before waits for I, and nobody waits for W but the optimizer. For a linear layer y = x A^T both are one
matrix product, dx = dy A and dA = dy^T x: so while I runs, each linear layer computes dx, and puts dy and x aside.

All other parameters (embeddings, norms) get their gradients with I: they cost little, as they need no matrix product.

Source: Qi et al., "Zero Bubble Pipeline Parallelism", 2401.10241, which writes B for what is I here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

WeightWork = Callable[[], None]

# Not local to a thread: for a GPU autograd computes in a thread of its own.
_deferred: list[WeightWork] | None = None


@contextmanager
def deferred_work(work: list[WeightWork]) -> Iterator[None]:
    """In this block, which is an I, what layers leave for W is added to `work`."""
    global _deferred
    before, _deferred = _deferred, work
    try:
        yield
    finally:
        _deferred = before


def weight_work(work: WeightWork) -> bool:
    """Leave something for W; for the backward of an autograd function.

    Args:
        work: adds to the `.grad` of weights; called without autograd.

    Returns:
        True: it is left for W, so that the function returns None for its weights. False: this is a whole backward pass,
        and the function returns their gradients as usual.
    """
    if _deferred is None:
        return False
    _deferred.append(work)
    return True


def defer_linear_weights(module: nn.Module) -> None:
    """From now on the linear layers of a module leave the gradients of their weights for W, where there is one.

    Without an I they are as before. Layers with a `forward` of their own are left alone; and `can_wait` says which
    weights get their gradients with I all the same.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear) and type(layer).forward is nn.Linear.forward and "forward" not in vars(layer):
            layer.forward = partial(_forward, layer)  # type: ignore[method-assign]


def _forward(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = SplitLinear.apply(x, layer.weight, layer.bias)
    return y


class SplitLinear(torch.autograd.Function):
    """A linear layer, x (..., K), weight (N, K), bias (N,) or None, to (..., N), whose backward pass has two parts.

    **Memory**: x until W, or until B; dy from I to W.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight, bias)
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        dx = dy @ _cast(weight, dy) if needs_x else None  # (..., K)
        if not needs_weight:
            return dx, None, _sum(dy) if needs_bias else None
        trained_bias = bias if needs_bias else None
        can_all_wait = can_wait(weight) and (trained_bias is None or can_wait(trained_bias))
        if can_all_wait and weight_work(lambda: add_weight_gradients(x, dy, weight, trained_bias)):
            return dx, None, None
        return dx, _product(dy, x), _sum(dy) if needs_bias else None


def defer_products(module: nn.Module) -> None:
    """As `defer_linear_weights`, for divided layers, which have a `product`, `F.linear`, beside communication."""
    for layer in module.modules():
        if getattr(layer, "product", None) is F.linear:
            layer.product = split_linear  # type: ignore[assignment]


def split_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`F.linear`, whose backward pass has two parts: x (..., K), weight (N, K), bias (N,) or None, to (..., N)."""
    y: torch.Tensor = SplitLinear.apply(x, weight, bias)
    return y


def can_wait(parameter: torch.Tensor) -> bool:
    """Whether the gradient of a parameter may be added to its `.grad` in W, past autograd.

    False for a weight that is computed, as by weight norm: its gradient goes on to what it is computed from. False for
    a parameter with a hook: autograd calls it with the gradient.
    """
    has_hooks = parameter._backward_hooks or parameter._post_accumulate_grad_hooks
    return parameter.is_leaf and not has_hooks


def add_weight_gradients(x: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """W of a linear layer: add dA = dy^T x and the bias's gradient to what is there."""
    add_gradient(weight, _product(dy, x))
    if bias is not None:
        add_gradient(bias, _sum(dy))


def add_gradient(parameter: torch.Tensor, gradient: torch.Tensor) -> None:
    """Add to a parameter's `.grad`, as autograd does."""
    if parameter.grad is None:
        parameter.grad = _cast(gradient, parameter)
    else:
        parameter.grad += gradient


def _cast(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The tensor in the dtype of another one: under autocast, gradients have another dtype than weights."""
    return tensor if tensor.dtype == like.dtype else tensor.to(like.dtype)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, tensor.shape[-1])  # (rows, K)


def _product(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return _rows(dy).t() @ _cast(_rows(x), dy)  # (N, rows) @ (rows, K)


def _sum(dy: torch.Tensor) -> torch.Tensor:
    return _rows(dy).sum(0)  # (N,)
