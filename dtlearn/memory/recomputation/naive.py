"""`page_checkpoint` without the random state: what goes wrong then, for the chapter that finds it out.

It saves the memory, and is wrong as soon as the function does not depend on its inputs alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class _NaiveRecompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
        ctx.function = function
        ctx.save_for_backward(*inputs)  # the inputs only: inside forward() autograd records nothing
        return function(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        inputs = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in ctx.saved_tensors]
        with torch.enable_grad():
            output = ctx.function(*inputs)  # the second forward pass, this time with a graph
        torch.autograd.backward(output, gradients[0])  # adds to the parameters' .grad
        return None, *(tensor.grad for tensor in inputs)


def naive_checkpoint(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
    """The output of `function`, whose activations are computed again in backward.

    It forgets what the function depends on besides its inputs. The second pass draws other random numbers, so that
    dropout drops other elements than in the first: the gradients are not those of the loss, and nothing says so. And it
    runs outside of the autocast block of the first. It takes tensors only, at least one of which has to require a
    gradient, and gives one.

    **Communication**: none of its own; a collective in `function` runs twice. **Memory**: the inputs until backward;
    then all activations of `function`.
    """
    output: torch.Tensor = _NaiveRecompute.apply(function, *inputs)
    return output
