"""Recomputation of activations: `page_checkpoint` for functions of any kind, with errors where it would be wrong.

Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 1604.06174; PyTorch's `torch.utils.checkpoint`,
which the results and the peak of memory are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.autograd.graph import get_gradient_edge
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from dtlearn.sharing.surroundings import current_surroundings

_TENSOR = object()  # stands for a tensor among the arguments
_CHANGED = (
    "the function changed one of its arguments in place. It is run again in backward, and would get the changed one: "
    "let it change a copy (x = x + 1 in place of x += 1), or leave it out of the checkpoint"
)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, whose activations are not kept but computed again in backward.

    `page_checkpoint` with: arguments and results of any kind, also tensors in lists and dictionaries, and results that
    the loss does not need; autocast, PyTorch's or this course's, and random numbers of every device among the tensors;
    a function that needs no gradient runs once; the results of the second pass are freed before its backward; and
    errors. A function may contain further checkpoints.

    The function runs twice. What it changes besides, it changes twice: running statistics of a batch norm, counters. It
    must not change its arguments. Of random numbers only those of torch's default generators come again. Tensors with a
    graph have to be arguments: backward goes through the graph of one that it takes from outside each time. The first
    pass is under `no_grad`, and `torch.is_grad_enabled()` says so.

    As parameters get their gradients while backward runs, `torch.autograd.grad` is refused: use `backward()`.
    Other differences to `torch.utils.checkpoint(..., use_reentrant=False)`: all floating-point results require a
    gradient if an argument, or a parameter that the function uses, does; and there are no second derivatives.

    **Communication**: none of its own; a collective in `function` runs twice, on all ranks in the same order.

    **Memory**: until backward the tensors among the arguments, and the states of random generators (5 kB). In backward
    all activations of the function, from its second pass to the end of its own backward pass.

    **Time**: one more forward pass of the function.

    Args:
        function: a module, or any function of the arguments and of parameters.
        args, kwargs: its arguments.
        preserve_rng_state: False: the second pass draws other random numbers; for functions that draw none.

    Raises:
        RuntimeError: the function changed an argument in place; in backward, if an argument was changed in place since,
            or under `torch.autograd.grad`.
    """
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    arguments, spec = tree_flatten((args, kwargs))
    call = _Call(function, arguments, spec)
    tensors = tensors_in(arguments)
    # Autograd records a function only if one of its inputs requires a gradient, and parameters are
    # not among them.
    anchor = torch.empty(0, requires_grad=True)
    results = CheckpointFunction.apply(call, preserve_rng_state, anchor, *tensors)
    return call.restored(results)


class CheckpointFunction(torch.autograd.Function):
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
        versions = [version_of(x) for x in tensors]
        known = any(x.requires_grad for x in tensors)
        with nullcontext() if known else UsesOfParameters() as uses:
            results = call(tensors)
        if versions != [version_of(x) for x in tensors]:
            raise RuntimeError(_CHANGED)
        if uses and not uses.any and not any(x.requires_grad for x in tensors_in(results)):
            ctx.mark_non_differentiable(*tensors_in(results))  # so there is no backward pass, and nothing is kept
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        """The gradients of forward's arguments. Those of parameters are added to their .grad."""
        _require_plain_backward()
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        with torch.enable_grad(), ctx.surroundings.restored():
            results = ctx.call(inputs)
        # The results' places in the graph are enough: their memory is then free for gradients.
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


class UsesOfParameters(TorchDispatchMode):
    """Notes whether an operation of its block gets a tensor that requires a gradient. The block records no graph."""

    def __init__(self) -> None:
        super().__init__()
        self.any = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.any = self.any or any(x.requires_grad for x in tensors_in((args, kwargs)))
        return func(*args, **(kwargs or {}))


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors in a value, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was changed in place. One of inference mode has no count, and autograd refuses it anyway."""
    return 0 if tensor.is_inference() else tensor._version


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
