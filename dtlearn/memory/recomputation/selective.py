"""Selective recomputation: results that are expensive to compute are kept, cheap ones are computed again.

A matrix product takes many operations per byte of its result, a norm or an activation function hardly any. So keeping
the products and computing the rest again saves memory for little time. Korthikanti et al., 2205.05198, section 5, do
the same by a checkpoint around the core of attention alone; FlashAttention does that inside its kernel.

PyTorch's counterpart is `torch.utils.checkpoint.create_selective_checkpoint_contexts`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from dtlearn.sharing.surroundings import RandomStates, random_states, set_random_states

from .checkpoint import checkpoint, tensors_in

KeepPolicy = Callable[[OpOverload], bool]  # whether the results of this operation are kept

# Names in torch.ops.aten.
LINEAR_LAYERS = frozenset({"addmm", "mm"})  # with and without bias
FUSED_ATTENTION = frozenset(
    {
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
    }
)

TENSOR = object()  # stands for a tensor among results


def selective_checkpoint(function: Callable[..., Any], *args: Any, keep: KeepPolicy, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`: of its activations those are kept that the policy says, the others computed again.

    `keep=lambda operation: False` is `checkpoint`. Always computed again: views, and what changes a tensor in place.
    Random numbers are those of the first pass, whether the operation that draws them is kept or not.

    **Communication**: none of its own; see `checkpoint`. **Memory**: the tensors among the arguments and the results
    that the policy keeps, also such as autograd would not need; in backward the other activations, too.
    **Time**: the operations that are computed again.

    Args:
        function: see `checkpoint`.
        args, kwargs: its arguments.
        keep: called for every operation of the first pass; True: keep its results. See `keep_only`.

    Raises:
        RuntimeError: in backward, if the second pass leaves out an operation that was kept, if a kept result was
            changed in place, or if backward runs a second time: kept results are released as they are used.
    """
    return checkpoint(_TwoPasses(function, keep), *args, **kwargs)


def keep_only(names: Iterable[str]) -> KeepPolicy:
    """The policy that keeps the results of these operations, such as `LINEAR_LAYERS | FUSED_ATTENTION`."""
    kept = frozenset(names)
    return lambda operation: operation_name(operation) in kept


def operation_name(operation: OpOverload) -> str:
    """`addmm` of `torch.ops.aten.addmm.default`."""
    return str(operation.overloadpacket.__name__)


class _Kept(NamedTuple):
    """The results of one operation, and the random states after it, if it drew random numbers."""

    saved: torch.Tensor  # its grad_fn has the tensors among the results, as long as this lives
    results: list[Any]  # with TENSOR in the place of a tensor
    spec: TreeSpec
    states: RandomStates


class _Saved(torch.autograd.Function):
    """Keeps tensors where autograd keeps its own: hooks on saved tensors see them, and changes in place are noticed."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*tensors)
        return anchor.clone()


class _TwoPasses:
    """The function: called first, it keeps results; called again, it uses them."""

    def __init__(self, function: Callable[..., Any], keep: KeepPolicy) -> None:
        self.function, self.keep = function, keep
        self.kept: dict[tuple[OpOverload, int], _Kept] = {}  # by operation, and how many of it came before
        self.passes = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.passes += 1
        if not torch.is_grad_enabled() and self.passes == 1:  # as `checkpoint` calls it first
            with _Keep(self.keep, self.kept):
                return self.function(*args, **kwargs)
        if self.passes > 2:
            raise RuntimeError("backward ran before, and the results that were kept for it are released by then")
        with _Use(self.kept):
            results = self.function(*args, **kwargs)
        if self.kept:
            name = operation_name(next(iter(self.kept))[0])
            raise RuntimeError(f"the second pass ran fewer operations than the first: {name} is missing")
        return results


class _Keep(TorchDispatchMode):
    """Keeps the results of the operations of a block that the policy names."""

    def __init__(self, keep: KeepPolicy, kept: dict[tuple[OpOverload, int], _Kept]) -> None:
        super().__init__()
        self.keep, self.kept = keep, kept
        self.calls: dict[OpOverload, int] = defaultdict(int)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        place = (func, self.calls[func])
        self.calls[func] += 1
        if makes_new_tensors(func) and self.keep(func):
            leaves, spec = tree_flatten(results)
            tensors = tensors_in(leaves)
            with torch.enable_grad():
                saved = _Saved.apply(torch.empty(0, requires_grad=True), *map(detached, tensors))
            without = [TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            drawn = torch.Tag.nondeterministic_seeded in func.tags
            states = random_states({tensor.device for tensor in tensors} if drawn else ())
            self.kept[place] = _Kept(saved, without, spec, states)
        return results


class _Use(TorchDispatchMode):
    """Runs a block with the results that were kept: those operations are left out."""

    def __init__(self, kept: dict[tuple[OpOverload, int], _Kept]) -> None:
        super().__init__()
        self.kept = kept
        self.calls: dict[OpOverload, int] = defaultdict(int)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        place = (func, self.calls[func])
        self.calls[func] += 1
        if place not in self.kept:
            return func(*args, **(kwargs or {}))
        kept = self.kept.pop(place)  # from now on only autograd holds the results, if it needs them
        tensors = iter(kept.saved.grad_fn.saved_tensors)  # type: ignore[union-attr]
        set_random_states(kept.states)
        return tree_unflatten([next(tensors) if leaf is TENSOR else leaf for leaf in kept.results], kept.spec)


def makes_new_tensors(operation: OpOverload) -> bool:
    """Return whether the results are new: not views of an argument, and not an argument changed in place."""
    return not any(result.alias_info for result in operation._schema.returns)


def detached(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory without a graph, which would be a circle; a change in place is seen in the version of both."""
    # Below autograd, where a dispatch mode runs, detach() would give a version of its own.
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False):
        return tensor.detach()
