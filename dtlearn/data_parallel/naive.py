"""Data parallelism as one writes it first: when backward is done, one all-reduce for each parameter, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.wrapping.backward_hooks import BackwardPass
from dtlearn.sharing.wrapping.copies import copy_in_group
from dtlearn.sharing.wrapping.replicas import broadcast_module, require_same_model, require_wrapped


def average_gradients(
    parameters: Iterable[nn.Parameter],
    *,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Replace each gradient by its mean over the ranks. Call it between `backward()` and `step()`.

    A parameter without a gradient on this rank takes part with zeros: others may have one, and a rank that left out a
    call would pair all later ones wrongly. It has a gradient afterwards; of zeros, if no rank had one, and then weight
    decay or momentum move a parameter that one process would leave alone (`DistributedDataParallel` asks the ranks).

    **Communication**: one all-reduce per parameter, each of its gradient's bytes, after backward and one after the
    other: P parameters of n bytes in all cost P latencies and n bytes, and nothing else happens meanwhile.
    **Memory**: none but the gradients.
    """
    world_size = dist.get_world_size(group)
    with torch.no_grad():
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                parameter.grad /= world_size  # first: in float16 the sum could overflow
                dist.all_reduce(parameter.grad, group=group)


class NaiveDataParallel(nn.Module):
    """`average_gradients` behind the interface of `DistributedDataParallel`: it happens at the end of `backward()`.

    **Communication**: once, `replicas.broadcast_module`; then see `average_gradients`, in each backward pass.
    **Memory**: none but the model and its gradients.

    Args:
        module: the model; the same shapes on every rank, on its device.
        group: ranks that train together; None: all.

    Raises:
        RuntimeError: the models of the ranks differ.
    """

    def __init__(self, module: nn.Module, *, group: dist.ProcessGroup | None = None) -> None:
        super().__init__()
        self.module = module
        self._group = group
        self._sync = True
        require_same_model(module, group=group)
        broadcast_module(module, group=group)
        self._trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._backward = BackwardPass(self._trained, ends=self.backward_ends)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        outputs = self.module(*inputs, **kwargs)
        if torch.is_grad_enabled():
            require_wrapped(self.module, set(map(id, self._trained)))
            self._backward.follow(outputs, self._sync)
        return outputs

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this block gradients are only added up on each rank.

        It is the forward pass that decides: the last micro-batch's forward and backward both belong outside.
        """
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    def __deepcopy__(self, memo: dict[int, Any]) -> NaiveDataParallel:
        return copy_in_group(self, memo, self._group)

    def backward_ends(self) -> None:
        average_gradients(self._trained, group=self._group)
