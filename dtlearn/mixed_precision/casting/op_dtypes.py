"""Formats that operations get and give, written down while they run."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class OpDtypes(NamedTuple):
    """One operation: its name, and the dtypes of its floating-point inputs and outputs, without "torch."."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class DtypeLog(TorchFunctionMode):
    """Writes down the operations of its block that give floating-point tensors.

    Inside an autocast it sees what the program passes and what comes back, not the casts between:
    `with autocast("cpu"), DtypeLog() as log: model(tokens)`. It works with `torch.autocast` too.

    Attributes:
        ops: in the order in which they ran.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[OpDtypes] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = dtypes((args, kwargs))
        result = func(*args, **kwargs)
        if dtypes(result):
            self.ops.append(OpDtypes(getattr(func, "__name__", ""), inputs, dtypes(result)))
        return result


def dtypes(value: Any) -> tuple[str, ...]:
    """The formats of all floating-point tensors in a value, in order: `("float32", "bfloat16")`."""
    tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    return tuple(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
