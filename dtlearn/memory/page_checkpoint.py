"""A checkpoint: keep the inputs of a function, and run its forward pass again in backward.

    forward    run the function without a graph: nothing inside it is kept, only its inputs
    backward   run it again, now with a graph, and go backward through that

The second pass has to be the first one again. So the random numbers are drawn again (dropout), and
inputs are detached: backward through them would leave the segment, into the graph before it.

Sources: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 1604.06174;
`torch.utils.checkpoint`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from dtlearn.sharing.surroundings import random_states, set_random_states


class ForwardAgain(torch.autograd.Function):
    """A function of tensors that autograd sees as one operation."""

    @staticmethod
    def forward(
        ctx: Any,
        function: Callable[..., torch.Tensor],
        anchor: torch.Tensor,
        *inputs: torch.Tensor,
    ) -> torch.Tensor:
        """The first pass. Autograd records nothing in here."""
        ctx.function = function
        ctx.random_states = random_states({x.device for x in inputs})
        ctx.save_for_backward(*inputs)
        return function(*inputs)

    @staticmethod
    @once_differentiable  # the second pass is no part of the graph: there are no second derivatives
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """The second pass, and backward through it; returns the gradients of forward's inputs."""
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        now = random_states(ctx.random_states)
        set_random_states(ctx.random_states)  # the masks of the first pass
        with torch.enable_grad():
            output = ctx.function(*inputs)
        set_random_states(now)  # what runs later draws as if there were no second pass
        torch.autograd.backward(output, gradient)  # adds to the .grad of parameters, too
        return None, None, *(x.grad for x in inputs)


def checkpoint(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
    """`function(*inputs)`, whose activations are not kept but computed again in backward.

    **Communication**: none of its own. A collective in the function runs twice, on every rank.

    **Memory**: the inputs until backward, and the state of the random generator, 5,056 bytes of the
    CPU's and 16 of a GPU's. Then, for one segment at a time, its activations and its output.

    Args:
        function: a module, or a function of tensors that gives one tensor. It changes none of them.
        inputs: tensors of any shapes; what the function draws, it draws on their device.
    """
    # Autograd records an operation if one of its inputs requires a gradient. The parameters inside
    # the function are no inputs, so the anchor is one: nobody looks at its gradient.
    anchor = torch.empty(0, requires_grad=True)
    output: torch.Tensor = ForwardAgain.apply(function, anchor, *inputs)
    return output
