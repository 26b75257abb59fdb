"""Stage 3 as one writes it first: all parameters are gathered before the forward pass and freed after backward.

Between steps each rank has 1/N of everything. Within a step it has all parameters and all gradients, so the
peak is that of stage 1; and no rank computes while parameters or gradients are sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.wrapping import BackwardPass, broadcast_tensors, require_same_model

from .division import shard_units
from .sharded_bucket import ShardedBucket


class NaiveFullyShardedDataParallel(nn.Module):
    """`FullyShardedDataParallel` with one unit, the model, and without prefetching.

    **Communication** (n bytes of parameters, padded; each rank sends (N-1)/N of what is named): once, an all-gather of
    16 bytes and a broadcast of n bytes; all-gather of n bytes before each forward pass; reduce-scatter of n bytes at
    the end of each backward pass, outside `no_sync()`. So 2n (N-1)/N a step, one call for each dtype.
    **Memory**: n/N of parameters and n/N of gradients between steps; from the forward pass to the end of the backward
    pass all parameters and all gradients beside them, 2n; at its end the gradients twice, each by itself and in the
    vector that is reduced.

    Args:
        module: the model; the same on all ranks, on its device.
        group: ranks that share the model; None: all.

    Attributes:
        module: the model; its parameters are the pieces, outside of passes.
        partition, names, shapes, pieces: as of `FullyShardedDataParallel`.

    Raises:
        ValueError: this rank is not in the group.
        RuntimeError: the models of the ranks differ.
    """

    def __init__(self, module: nn.Module, *, group: dist.ProcessGroup | None = None) -> None:
        super().__init__()
        require_same_model(module, group=group)
        broadcast_tensors(list(module.buffers()), group=group)
        self.names = [name for name, _ in module.named_parameters()]
        self.shapes = [parameter.shape for parameter in module.parameters()]
        self.module = module
        num_ranks = dist.get_world_size(group)
        (self._model,), self.partition = shard_units(module, (), num_ranks, partial(ShardedBucket, group=group))
        self.pieces = list(module.parameters())
        self._sync = self._reduces = True
        parameters = [parameter for bucket in self._model.buckets for parameter in bucket.parameters]
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        self._backward = BackwardPass(trained, ends=self.backward_ends)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        self._model.use()  # waits for all parameters
        outputs = self.module(*inputs, **kwargs)
        if torch.is_grad_enabled():
            self._reduces = self._sync
            self._backward.follow(outputs, True)
        else:
            self._model.free()
        return outputs

    def backward_ends(self) -> None:
        """Called after the last gradient: average all, keep the shard, free the rest."""
        self._model.free()
        if self._reduces:
            for reduction in self._model.launch_reduce():
                reduction.finish()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this block gradients are only added up on each rank; it is the forward pass that decides."""
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    @contextmanager
    def full_params(self) -> Iterator[None]:
        """In this block `module` has all its parameters; what is changed in them is kept."""
        self._model.show_all()
        try:
            yield
        finally:
            self._model.take_back()
