"""Mixed precision with sharded parameters: which format the shards have, what is gathered, what is reduced.

The shards stay in float32. They are the master weights: each element once, on one rank, so that masters cost 4 / N
bytes per parameter. A shard is rounded to 16 bits before it is gathered: the all-gather sends half the bytes, and the
gathered weights, with which the layer computes, have 16 bits too. Gradients come out of the layer in 16 bits.
`reduce_dtype` says in which format ranks add them up; what arrives at a shard is float32 again.

    shard, float32 -> to_gather -> all-gather -> forward, backward -> to_reduce -> reduce-scatter -> to_shard -> .grad

Adding up in float32 sends twice the bytes of bfloat16. In bfloat16 the sum over N ranks has 8 significant bits, and a
small gradient is lost beside a large sum. In float16 a sum may overflow.

Sources: Micikevicius et al., "Mixed Precision Training", 1710.03740; Zhao et al., "PyTorch FSDP", 2304.11277, section
4.4; `torch.distributed.fsdp.MixedPrecisionPolicy`, whose names and division of float16 these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only
from torch.utils.hooks import RemovableHandle


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Formats of a sharded module; each None: as it is.

    **Communication**: none itself. With Ψ parameters, an all-gather sends Ψ(N-1)/N elements of
    `param_dtype`, a reduce-scatter as many of `reduce_dtype`.
    **Memory**: gathered weights and their gradients have `param_dtype`, shards and their gradients
    keep their own. While a shard is gathered, its rounded copy: the bytes of `param_dtype` / N. While
    a gradient is reduced, its copy in `reduce_dtype`, if that is another format.

    Args:
        param_dtype: of gathered weights, and so of the computation.
        reduce_dtype: in which ranks add up gradients; None: in the format they come in.
        output_dtype: of the floating-point outputs of the module.
        cast_forward_inputs: floating-point inputs get `param_dtype`.

    Raises:
        ValueError: a dtype that is no floating-point format.
    """

    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    output_dtype: torch.dtype | None = None
    cast_forward_inputs: bool = True

    def __post_init__(self) -> None:
        for name in ("param_dtype", "reduce_dtype", "output_dtype"):
            dtype = getattr(self, name)
            if dtype is not None and not dtype.is_floating_point:
                raise ValueError(f"{name} must be a floating-point dtype such as torch.bfloat16; got {dtype}")

    def gather_dtype(self, shard_dtype: torch.dtype) -> torch.dtype:
        """The format of the gathered weights whose shards have this one."""
        return self.param_dtype or shard_dtype

    def to_gather(self, shard: torch.Tensor) -> torch.Tensor:
        """A shard (n,) as it is sent: rounded; the shard itself if nothing changes."""
        return shard.detach().to(self.gather_dtype(shard.dtype))

    def to_reduce(self, gradient: torch.Tensor, num_ranks: int) -> torch.Tensor:
        """A flat gradient (N * n,) as ranks add it up: in `reduce_dtype`, divided as it must be.

        The gradient itself is changed if it has that format already.
        """
        dtype = self.reduce_dtype or gradient.dtype
        before, _ = divisors(num_ranks, dtype)
        gradient = gradient.to(dtype)  # first: what is divided in 16 bits is rounded in 16 bits
        return gradient.div_(before) if before != 1 else gradient

    def to_shard(self, reduced: torch.Tensor, shard: torch.Tensor, num_ranks: int) -> torch.Tensor:
        """The sum over ranks (n,) as the shard's gradient: the mean, in the shard's format."""
        _, after = divisors(num_ranks, reduced.dtype)
        reduced = reduced.to(shard.dtype)
        return reduced.div_(after) if after != 1 else reduced

    def cast_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of `forward`, floating-point tensors in any nest of them in `param_dtype`."""
        if self.param_dtype is None or not self.cast_forward_inputs:
            return args, kwargs
        return _cast((args, kwargs), self.param_dtype)  # type: ignore[no-any-return]

    def cast_outputs(self, outputs: Any) -> Any:
        """Return what `forward` returned, floating-point tensors in any nest of it in `output_dtype`."""
        return outputs if self.output_dtype is None else _cast(outputs, self.output_dtype)

    def attach(self, units: Sequence[nn.Module]) -> list[RemovableHandle]:
        """Have hooks cast the inputs of these modules, and the outputs of the first one, the root.

        Called after the hooks that unshard are registered: those see what is cast.
        """
        handles = []
        if self.param_dtype is not None and self.cast_forward_inputs:
            for unit in units:
                cast = partial(_before_forward, self)
                handles.append(unit.register_forward_pre_hook(cast, prepend=True, with_kwargs=True))
        if self.output_dtype is not None:
            handles.append(units[0].register_forward_hook(partial(_after_forward, self)))
        return handles


def divisors(num_ranks: int, dtype: torch.dtype) -> tuple[float, float]:
    """The divisors of a gradient before and after the sum over N ranks; together N. As in PyTorch.

    Before the sum a rank divides all of its gradient, after it only its own 1 / N. float32 and
    bfloat16 have the range for that. In float16 the sum of N gradients may overflow, and a gradient
    divided by N may become 0: so about sqrt(N) before, the rest after it.

    Examples:
        float32 and 4 ranks: 1, 4. float16 and 2, 3, 4, 8 ranks: 2, 1; 2, 1.5; 2, 2; 4, 2.
    """
    before = 1.0
    if dtype in (torch.float64, torch.float32, torch.bfloat16):
        return before, float(num_ranks)
    while num_ranks % before == 0 and num_ranks / before > before:
        before *= 2.0  # a power of two: nothing is rounded by it
    return before, num_ranks / before


def _before_forward(policy: MixedPrecisionPolicy, _: nn.Module, inputs: Any, kwargs: Any) -> Any:
    return policy.cast_inputs(inputs, kwargs)


def _after_forward(policy: MixedPrecisionPolicy, _: nn.Module, inputs: Any, outputs: Any) -> Any:
    return policy.cast_outputs(outputs)


def _cast(values: Any, dtype: torch.dtype) -> Any:
    return tree_map_only(torch.Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, values)
