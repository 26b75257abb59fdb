"""Tensors that autograd really keeps, read off a run: the other side of the tables in `activations`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks


class KeptTensor(NamedTuple):
    """A storage that autograd keeps.

    Attributes:
        module: the innermost module whose forward kept it first; "" outside of all.
        shape: of the tensor that was kept first.
        dtype: of its elements.
        bytes: of the whole storage; it may be larger than the tensor.
    """

    module: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int


def kept_tensors(run: Callable[[], Any], model: nn.Module, *inputs: torch.Tensor) -> list[KeptTensor]:
    """Return what autograd keeps of `run()` for a backward pass: storages, in order, each once.

    Parameters and buffers of the model and the `inputs` are left out: they were there before. Seen is what autograd
    saves, the inputs of a checkpoint and the kept results of a selective one too; not what an object of Python holds.

    Args:
        run: forward pass and loss.
        model: whose modules are named.
        inputs: tensors that `run` uses.
    """
    before = (*model.parameters(), *model.buffers(), *inputs)
    storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in before}
    rows: list[KeptTensor] = []
    with _current_module(model) as stack:

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in storages:
                rows.append(KeptTensor(stack[-1], tuple(tensor.shape), tensor.dtype, storage.nbytes()))
                storages[storage.data_ptr()] = tensor.detach()  # lives as long as this call: no address comes twice
            return tensor

        with saved_tensors_hooks(keep, lambda tensor: tensor):
            run()
    return rows


@contextmanager
def _current_module(model: nn.Module) -> Iterator[list[str]]:
    """A list that ends with the name of the module whose forward runs now, or with ""."""
    stack = [""]
    hooks = []
    for name, module in model.named_modules():

        def begin(module: nn.Module, inputs: Any, name: str = name) -> None:
            stack.append(name)

        def end(module: nn.Module, inputs: Any, outputs: Any) -> None:
            stack.pop()

        hooks += [module.register_forward_pre_hook(begin), module.register_forward_hook(end, always_call=True)]
    try:
        yield stack
    finally:
        for hook in hooks:
            hook.remove()
