"""Costs of each kind of operation to keep, in bytes, and to compute again, in floating-point operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from .selective import makes_new_tensors, operation_name, tensors_in


class OperationCost(NamedTuple):
    """All calls of one operation in a run.

    Attributes:
        name: in `torch.ops.aten`.
        calls: how many.
        bytes: of their results.
        flops: of matrix products: two for each multiplication with its addition. Of all others, one for each element of
            the results: they are limited by memory, and the number only says that it is small.
    """

    name: str
    calls: int
    bytes: int
    flops: int

    @property
    def flops_per_byte(self) -> float:
        """The cost of computing again for each byte that it saves."""
        return self.flops / self.bytes if self.bytes else 0.0


def operation_costs(function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[OperationCost]:
    """Costs of the operations of `function(*args, **kwargs)`, those first that cost most to compute again per byte.

    Views and changes in place are left out: they make nothing that could be kept.
    """
    with torch.no_grad(), _Costs() as costs:
        function(*args, **kwargs)
    return sorted(costs.rows.values(), key=lambda row: -row.flops_per_byte)


class _Costs(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, OperationCost] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        if makes_new_tensors(func):
            name, tensors = operation_name(func), tensors_in(results)
            row = self.rows.get(name, OperationCost(name, 0, 0, 0))
            nbytes = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
            flops = count_flops(func, args, kwargs or {}, results)
            self.rows[name] = OperationCost(name, row.calls + 1, row.bytes + nbytes, row.flops + flops)
        return results


def count_flops(operation: Any, args: Any, kwargs: Any, results: Any) -> int:
    """Floating-point operations of one call."""
    if operation.overloadpacket in flop_registry:
        return int(flop_registry[operation.overloadpacket](*args, **kwargs, out_val=results))
    if operation_name(operation) == "_scaled_dot_product_flash_attention_for_cpu":  # torch counts those of GPUs only
        return int(sdpa_flop_count(*(tensor.shape for tensor in args[:3])))
    return sum(tensor.numel() for tensor in tensors_in(results))
