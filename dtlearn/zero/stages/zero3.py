"""ZeRO stage 3: each rank keeps 1/N of the parameters, of the gradients and of the optimizer's state.

Before a unit of the model computes, its parameters are gathered from all ranks; after it they are freed. In the
backward pass they are gathered once more, and the gradients are reduced to shards as soon as the unit is done.

Sources: ZeRO, 1910.02054, section 5.3; FSDP, 2304.11277; and the interface of PyTorch's `fully_shard` (FSDP2).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.host_memory import Host
from dtlearn.sharing.wrapping import broadcast_tensors, require_same_model
from dtlearn.sharing.wrapping.module_hooks import (
    in_backward_pass,
    outputs_to_watch,
    refuse_optimizers_of,
    watch_inputs,
)

from ..partition.partition import Bucket
from ..precision import MixedPrecisionPolicy
from .division import shard_units
from .prefetch import Prefetcher
from .sharded_bucket import Reduction, ShardedBucket
from .unit import Unit, UnitEvent


class FullyShardedDataParallel(nn.Module):
    """A model whose parameters every rank has in shards; after `backward()` the shards have the mean gradients.

    Wrap the model when it is on its device, and build the optimizer afterwards, over `parameters()`: those are the
    pieces, vectors under the parameters' names. All ranks begin with rank 0's values.

    **Communication** (n bytes of parameters, padded bucket by bucket; each rank sends (N-1)/N of what is named):
        once: all-gather of 16 bytes; broadcast of n bytes, a call for each bucket, and of the buffers
        forward: all-gather of n bytes, a call for each bucket of a unit
        backward: all-gather of n bytes, less what `reshard_after_forward` kept; reduce-scatter of the trained ones
        So 3n (N-1)/N a step; 2n (N-1)/N with reshard_after_forward=False. In `no_sync()` no reduce-scatter.
    **Memory**: n/N of parameters, n/N of gradients. Beside them, while a pass runs: the parameters of the unit in use,
        of `prefetch` more, and of the root; in the backward pass the gradients of the root and of two units, one that
        is computed and one that is sent. With reshard_after_forward=False all parameters, n, from the forward pass to
        the backward pass; after `no_sync()` all gradients, n, until the next reduction.

    Where it differs from `fully_shard`:
        a bucket is cut into N equal shards, wherever the cuts fall; FSDP2 cuts each parameter along dimension 0;
        a parameter of a unit that the loss does not depend on gets zeros; FSDP2 leaves it without a gradient;
        the last micro-batch reduces what earlier ones have added up in `no_sync()`: so does FSDP2, with
        `set_requires_gradient_sync`, but there the backward pass decides, here the forward pass.

    Args:
        module: the model; the same on all ranks, on its device.
        units: classes of modules that are gathered each for itself; what lies in none of them is in the root unit.
        group: ranks that share the model; None: all.
        reshard_after_forward: free the parameters of a unit after its forward pass, and gather them again in the
            backward pass. None: as True, but keep those of the root, which backward needs first; FSDP2's default.
        prefetch: units that are gathered ahead of the one that computes.
        policy: dtypes; None: those of the parameters.
        offload: shards and their gradients are on this host, and each gather and each reduction copies a shard; build
            the optimizer by `offloaded(...)(..., host=offload)`. None: they are on the model's device.

    Attributes:
        module: the model.
        units: the root first.
        partition, names, shapes, pieces: who owns what; and of each parameter, by its number there, its name in
            `module`, its shape, and what this rank has of it.

    Raises:
        ValueError: this rank is not in the group; a class in `units` of which there is no module; a tied parameter in
            two units; a negative `prefetch`.
        RuntimeError: the models of the ranks differ.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        units: Sequence[type[nn.Module]] = (),
        group: dist.ProcessGroup | None = None,
        reshard_after_forward: bool | None = True,
        prefetch: int = 1,
        policy: MixedPrecisionPolicy | None = None,
        offload: Host | None = None,
    ) -> None:
        super().__init__()
        require_same_model(module, group=group)
        broadcast_tensors(list(module.buffers()), group=group)
        parameters = dict(module.named_parameters())
        weakref.finalize(self, refuse_optimizers_of(parameters.values()).remove)
        self.names, self.shapes = list(parameters), [parameter.shape for parameter in parameters.values()]
        self.module = module
        self._policy, self._offload = policy or MixedPrecisionPolicy(), offload
        make_bucket = partial(self._make_bucket, group=group, policy=self._policy, offload=offload)
        self.units, self.partition = shard_units(module, units, dist.get_world_size(group), make_bucket)
        self.pieces = list(module.parameters())
        self._addresses = {piece: piece.data_ptr() for piece in self.pieces}
        self._root = self.units[0]
        self._reshard = reshard_after_forward
        self._prefetcher = Prefetcher(self.units, prefetch)
        self._sync, self._is_full, self._backward_runs = True, False, False
        self._reductions: list[Reduction] = []
        for unit in self.units:
            unit.module.register_forward_pre_hook(partial(self._before_forward, unit), prepend=True, with_kwargs=True)
            unit.module.register_forward_hook(partial(self._after_forward, unit), always_call=True)

    def _make_bucket(self, bucket: Bucket, parameters: Sequence[nn.Parameter], **options: Any) -> ShardedBucket:
        return ShardedBucket(bucket, parameters, **options)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)

    # Around the forward pass of a unit

    def _before_forward(self, unit: Unit, _: nn.Module, inputs: Any, kwargs: Any) -> Any:
        if self._is_full:
            return inputs, kwargs
        recomputes = in_backward_pass()
        if unit is self._root and not recomputes:
            self._pass_begins()
        unit.use()
        if not recomputes:
            for following in self._prefetcher.next_in_forward(unit):
                following.launch()
        inputs, kwargs = self._policy.cast_inputs(inputs, kwargs)
        if torch.is_grad_enabled():
            return watch_inputs(inputs, kwargs, partial(self._after_backward, unit))
        return inputs, kwargs

    def _after_forward(self, unit: Unit, _: nn.Module, inputs: Any, outputs: Any) -> Any:
        if self._is_full or unit.in_backward:  # in backward: a checkpoint ran it again, and is to be left alone
            return outputs
        outputs = self._policy.cast_outputs(outputs) if unit is self._root else outputs
        unit.note("done")
        unit.show(False)
        follows = outputs_to_watch(outputs, unit.name or "the model") if torch.is_grad_enabled() else []
        for tensor in follows:
            tensor.register_hook(partial(self._before_backward, unit, self._sync))
        for over in self.units if unit is self._root else [unit]:  # the root's end is that of what was never used, too
            is_kept = self._reshard is False or (self._reshard is None and over is self._root)
            if not (follows and is_kept):
                over.free()
        return outputs

    # Around the backward pass of a unit

    def _before_backward(self, unit: Unit, sync: bool, _: torch.Tensor) -> None:
        if not self._backward_runs:
            self._backward_runs = True
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)
        if not unit.in_backward:  # this is the first of its outputs
            unit.in_backward, unit.sync = True, sync
            unit.use()
            for preceding in self._prefetcher.next_in_backward(unit):
                preceding.launch()

    def _after_backward(self, unit: Unit) -> None:
        if unit.in_backward:
            unit.in_backward = False
            unit.note("done")
            unit.free()  # first: its gradients are about to be there twice, each by itself and as what is reduced
            if unit.sync:
                self._advance_reductions()  # one at a time: each holds all gradients of a unit
                self._reductions += unit.launch_reduce()

    def _backward_ends(self) -> None:
        """Now the root is done, and each unit whose inputs need no gradient."""
        for unit in reversed(self.units):
            self._after_backward(unit)
            unit.free()  # it may have been gathered and not used
        self._finish_reductions()
        if self._offload is not None:
            self._offload.finish()  # who reads the gradients now finds them there
        self._backward_runs = False

    def _finish_reductions(self) -> None:
        while self._reductions:
            self._advance_reductions()

    def _advance_reductions(self) -> None:
        following = [reduction.finish() for reduction in self._reductions]
        self._reductions = [reduction for reduction in following if reduction is not None]

    # Between passes

    def _pass_begins(self) -> None:
        if self._backward_runs:  # an error has ended the last backward pass
            for reduction in self._reductions:
                reduction.drop()
            self._reductions, self._backward_runs = [], False
        for unit in self.units:
            if unit.in_backward:
                unit.in_backward = False
                unit.drop_gradients()
            unit.free()
        for name, parameter in self.module.named_parameters():
            if self._addresses.get(parameter) != parameter.data_ptr():
                raise RuntimeError(
                    f"{name} has come or was moved since the model was sharded, and no rank would gather it: change "
                    "the model, its dtype and its device before it is sharded"
                )
        self._prefetcher.forward_begins()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this block gradients are only added up on each rank, all of them; it is the forward pass that decides."""
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    @contextmanager
    def full_params(self) -> Iterator[None]:
        """In this block `module` has all its parameters, in their shapes, to be read, changed, saved or evaluated.

        What is changed in them is kept: each rank takes its shard from its own parameters. They have no gradients.

        **Communication**: an all-gather of the n bytes of the parameters.
        **Memory**: n bytes.
        """
        for unit in self.units:
            unit.show_all()
        self._is_full = True
        try:
            yield
        finally:
            self._is_full = False
            for unit in self.units:
                unit.take_back()

    def record_events(self) -> list[UnitEvent]:
        """Write down from now on what happens to the units: in the list that is returned."""
        events: list[UnitEvent] = []
        for unit in self.units:
            unit.events = events
        return events
