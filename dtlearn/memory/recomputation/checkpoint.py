"""Recomputation of activations: a function whose inputs are kept, and whose activations are computed a second time.

Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 1604.06174; PyTorch's `torch.utils.checkpoint`,
which the results and the peak of memory are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.autograd.graph import get_gradient_edge
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from dtlearn.memory.recomputation.surroundings import current_surroundings

_TENSOR = object()  # stands for a tensor among the arguments


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, whose activations are not kept but computed again in backward.

    Random numbers and autocast are in the second pass what they were in the first, on the CPU and on the devices of the
    tensors among the arguments. Arguments and results may be of any kind, also tensors in lists and dictionaries. A
    function may contain further checkpoints.

    What else the function changes, it changes twice: running statistics of a batch norm, counters. It must not change
    its arguments in place. As parameters get their gradients while backward runs, `torch.autograd.grad` is refused: use
    `backward()`. Other differences to `torch.utils.checkpoint(..., use_reentrant=False)`: every floating-point result
    requires a gradient, even if nothing in the function does, and there are no second derivatives.

    **Communication**: none of its own; a collective in `function` runs twice, on all ranks in the same order.

    **Memory**: until backward the tensors among the arguments, and the states of random generators (5 kB). In backward
    all activations of the function, from its second pass to the end of its own backward pass.

    **Time**: one more forward pass of the function.

    Args:
        function: a module, or any function of the arguments and of parameters.
        args, kwargs: its arguments.
        preserve_rng_state: False: the second pass draws other random numbers; for functions that draw none.

    Raises:
        RuntimeError: in backward, if an argument was changed in place, or under `torch.autograd.grad`.
    """
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    arguments, spec = tree_flatten((args, kwargs))
    call = _Call(function, arguments, spec)
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    # Autograd records a function only if one of its inputs requires a gradient, and parameters are
    # not among them.
    anchor = torch.empty(0, requires_grad=True)
    results = Recompute.apply(call, preserve_rng_state, anchor, *tensors)
    return call.restored(results)


class Recompute(torch.autograd.Function):
    """A call that autograd sees as one operation: it saves the tensors among the arguments, and nothing inside."""

    @staticmethod
    def forward(
        ctx: Any,
        call: _Call,
        preserve_rng_state: bool,
        anchor: torch.Tensor,
        *tensors: torch.Tensor,
    ) -> Any:
        """The results of the call, one after the other; in here autograd records nothing."""
        ctx.call = call
        ctx.surroundings = current_surroundings(tensors, preserve_rng_state)
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)  # None for a result that the loss does not need
        return call(tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        """The gradients of forward's arguments. Those of parameters are added to their .grad."""
        _require_plain_backward()
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        with torch.enable_grad(), ctx.surroundings.restored():
            results = ctx.call(inputs)
        # Of the results their places in the graph are enough: their memory is then free for gradients.
        needed = [
            (get_gradient_edge(result), gradient)
            for result, gradient in zip(results, gradients, strict=True)
            if gradient is not None and result.requires_grad
        ]
        del results
        if needed:
            places, of_results = zip(*needed, strict=True)
            torch.autograd.backward(places, of_results)
        return None, None, None, *(tensor.grad for tensor in inputs)


def _require_plain_backward() -> None:
    if not torch.autograd._is_checkpoint_valid():  # the engine was asked for some gradients only
        raise RuntimeError(
            "a checkpoint adds to the .grad of parameters, so it works with loss.backward() only, not with "
            "torch.autograd.grad() and not with backward(inputs=...)"
        )


class _Call:
    """A function and its arguments, but for the tensors among them: autograd keeps those."""

    def __init__(self, function: Callable[..., Any], arguments: list[Any], spec: TreeSpec) -> None:
        self.function = function
        self.arguments = [_TENSOR if isinstance(argument, torch.Tensor) else argument for argument in arguments]
        self.spec = spec
        self.result_spec: TreeSpec | None = None

    def __call__(self, tensors: Iterable[torch.Tensor]) -> tuple[Any, ...]:
        """Run the function with these tensors in their places; its results, one after the other."""
        rest = iter(tensors)
        arguments = [next(rest) if argument is _TENSOR else argument for argument in self.arguments]
        args, kwargs = tree_unflatten(arguments, self.spec)
        results, self.result_spec = tree_flatten(self.function(*args, **kwargs))
        return tuple(results)

    def restored(self, results: tuple[Any, ...]) -> Any:
        """The results in the lists and dictionaries in which the function gave them."""
        assert self.result_spec is not None
        return tree_unflatten(list(results), self.result_spec)
