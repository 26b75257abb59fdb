"""Stage 2 as one writes it first: when backward is over, gradients are reduced to shards, bucket by bucket.

After backward each rank has 1/N of the gradients, as in stage 2. But at the end of backward it had all of them, so the
peak is that of stage 1; and no rank computes while gradients are sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from dtlearn.sharing.wrapping import BackwardPass, broadcast_module, require_same_model

from .zero1 import ZeroRedundancyOptimizer
from .zero2 import add_gradients, check_optimizer_of


class NaiveShardedGradients(nn.Module):
    """`ShardedGradients` without the hook.

    **Communication** (n bytes of trained parameters, padded): as `ShardedGradients`, but all of it after backward.
    **Memory**: all gradients, n, at the end of backward; n/N after it.

    Args:
        module: the model, on its device.
        optimizer: over its parameters, with gradients="local".

    Raises:
        ValueError, RuntimeError: as `ShardedGradients`.
    """

    def __init__(self, module: nn.Module, optimizer: ZeroRedundancyOptimizer) -> None:
        super().__init__()
        check_optimizer_of(module, optimizer)
        require_same_model(module, group=optimizer.flat.group)
        broadcast_module(module, group=optimizer.flat.group)
        self.module, self.optimizer = module, optimizer
        self._sync = True
        self._backward = BackwardPass(optimizer.flat.parameters, ends=self.backward_ends)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        outputs = self.module(*inputs, **kwargs)
        if torch.is_grad_enabled():
            self._backward.follow(outputs, self._sync)
        return outputs

    def backward_ends(self) -> None:
        """Called after the last gradient: reduce all, and free them."""
        flat = self.optimizer.flat
        for bucket in flat.partition.buckets:
            members = [flat.parameters[number] for number in bucket.parameters]
            add_gradients(self.optimizer, bucket.index, flat.reduce(bucket.index, [p.grad for p in members]))
            for parameter in members:
                parameter.grad = None

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this block gradients are only added up on each rank; it is the forward pass that decides."""
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before
