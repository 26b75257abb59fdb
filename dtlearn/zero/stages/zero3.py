"""ZeRO stage 3: each rank keeps 1/N of the parameters, of the gradients and of the optimizer's state.

`page_zero3` is the idea. Here it is in four files: the hooks and the verbs in `unit`, the memory and the two
collectives in `sharded_bucket`, what units share in `passes`, and the model that a user has, in this one. Beside them
`unsharded_params` turns reads of freed memory into errors.

Sources: ZeRO, 1910.02054, section 5.3; FSDP, 2304.11277; and the interface of PyTorch's `fully_shard` (FSDP2).
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.host_memory import Host
from dtlearn.sharing.wrapping import broadcast_tensors, require_same_model
from dtlearn.sharing.wrapping.module_hooks import refuse_optimizers_of

from ..gradient_hooks import refuse_hooks
from ..partition.partition import Bucket
from ..precision import MixedPrecisionPolicy
from ..refusals import refuse_steps
from ..shard_store import ShardStore
from ..unit_events import UnitEvent, record_units
from .division import shard_units
from .passes import Passes
from .sharded_bucket import ShardedBucket
from .unit import NOT_ALONE


class FullyShardedDataParallel(nn.Module):
    """`page_zero3` with overlap, several dtypes, frozen and tied parameters, accumulation, mixed precision, offload.

    A model whose parameters every rank has in shards; after `backward()` the shards have the mean gradients. Wrap the
    model when it is on its device, and build the optimizer afterwards, over `parameters()`: those are the sharded
    parameters, vectors under the parameters' names. All ranks begin with rank 0's values.

    **Communication** (n bytes of parameters, padded bucket by bucket; each rank sends (N-1)/N of what is named):
        once: all-gather of 16 bytes; broadcast of n bytes, a call for each bucket, and of the buffers
        forward: all-gather of n bytes, a call for each bucket of a unit
        backward: all-gather of n bytes, less what `reshard_after_forward` kept; reduce-scatter of the trained ones
        So 3n (N-1)/N a step; 2n (N-1)/N with reshard_after_forward=False. In `no_sync()` no reduce-scatter.
    **Memory**: n/N of parameters, n/N of gradients. Beside them, while a pass runs: the parameters of the unit in use,
        of `prefetch` more, and of the root; in the backward pass the gradients of the root and of two units, one that
        is computed and one that is sent. With reshard_after_forward=False all parameters, n, from the forward pass to
        the backward pass; after `no_sync()` all gradients, n, until the next reduction; in a backward pass through
        gradients, made with create_graph=True, all parameters and all gradients, to its end.

    `copy.deepcopy` makes a model with its own shards and hooks; the groups and the host are the same. Hooks of the
    sharded parameters are called with this rank's part of the mean gradient.

    A weight, or a view of one, that is kept when its unit is done says so when it is read (`unsharded_params`); with
    `fully_shard` the process ends with SIGSEGV. What nobody can follow is a backward pass that begins at a tensor from
    inside a unit whose weights are freed. torch then says that a variable "has been modified by an inplace operation".

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
        partition, names, shapes, sharded_params: who owns what; and of each parameter, by its number there, its name
            in `module`, its shape, and what this rank has of it.

    Raises:
        ValueError: this rank is not in the group; a class in `units` of which there is no module; a tied parameter in
            two units; a negative `prefetch`; a parameter with a gradient hook, which would be lost.
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
        refuse_hooks(parameters)
        weakref.finalize(self, refuse_optimizers_of(parameters.values()).remove)
        self.names, self.shapes = list(parameters), [parameter.shape for parameter in parameters.values()]
        self.module = module
        self._store = ShardStore(policy, offload)
        make_bucket = partial(self._make_bucket, group=group, store=self._store)
        self.units, self.partition = shard_units(module, units, dist.get_world_size(group), make_bucket)
        self._prefetch, self._reshard_after_forward = prefetch, reshard_after_forward
        self._begin()

    def _make_bucket(self, bucket: Bucket, parameters: Sequence[nn.Parameter], **options: Any) -> ShardedBucket:
        return ShardedBucket(bucket, parameters, **options)

    def _begin(self) -> None:
        """The units are there: attach them to the modules."""
        self.sharded_params = list(self.module.parameters())
        self._addresses = {param: param.data_ptr() for param in self.sharded_params}
        me = weakref.ref(self)
        weakref.finalize(self, refuse_steps(self.sharded_params, partial(_require_backward, me)).remove)
        self._passes = Passes(self.units, self._prefetch, begins=self._require_same_params, finish=self._store.finish)
        self._is_unsharded = False
        self._attach()

    def _attach(self) -> None:
        for unit in self.units:
            keeps = self._reshard_after_forward is False or (
                self._reshard_after_forward is None and unit is self.units[0]
            )
            unit.attach(self._passes, reshard_after_forward=not keeps)
        self._casts = self._store.policy.attach([unit.module for unit in self.units])

    def _detach(self) -> None:
        for handle in self._casts:
            handle.remove()
        for unit in self.units:
            unit.detach()

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this block gradients are only added up on each rank, all of them; it is the forward pass that decides."""
        before, self._passes.sync = self._passes.sync, False
        try:
            yield
        finally:
            self._passes.sync = before

    @torch.no_grad()
    def full_params(self) -> dict[str, torch.Tensor]:
        """A copy of all parameters, whole, by their names in `module`, on every rank; a tied one once.

        All ranks of the group call it.

        **Communication**: an all-gather of the n bytes of the parameters, a call for each bucket.
        **Memory**: n bytes, on every rank.
        """
        if self._is_unsharded:
            return {name: param.detach().clone() for name, param in self.module.named_parameters()}
        whole = dict[int, torch.Tensor]()
        for unit in self.units:
            for bucket in unit.buckets:
                whole |= bucket.whole()
        return {name: whole[number] for number, name in enumerate(self.names)}

    @contextmanager
    def unsharded(self) -> Iterator[None]:
        """In this block `module` is a plain model with whole parameters, to be read, changed, saved, copied, evaluated.

        What is changed in them is kept: each rank takes its shard from its own parameters. They have no gradients.

        **Communication**: an all-gather of the n bytes of the parameters, a call for each bucket.
        **Memory**: n bytes.
        """
        if self._is_unsharded:
            yield
            return
        self._detach()
        for unit in self.units:
            unit.to_copies()
        self._is_unsharded = True
        try:
            yield
        finally:
            self._is_unsharded = False
            for unit in self.units:
                unit.take_copies()
            self._attach()

    def record_events(self) -> list[UnitEvent]:
        """Write down from now on what happens to the units: in the list that is returned."""
        return record_units(self.units)

    # Copies

    def __deepcopy__(self, memo: dict[int, Any]) -> FullyShardedDataParallel:
        """A model with shards and hooks of its own, for the same ranks; nothing is sent."""
        if self._is_unsharded:
            raise RuntimeError(
                "the parameters are unsharded here: copy model.module, which is a plain model now, or copy the "
                "sharded model outside of the block"
            )
        self._detach()
        running = [unit for unit in self.units if not unit.shows_shards]
        twin = memo[id(self)] = type(self).__new__(type(self))
        try:
            for unit in self.units:
                unit.to_sharded()
            of_module = nn.Module().__dict__.keys()  # the others are shared, and then replaced by `_begin`
            state = {
                key: copy.deepcopy(value, memo) if key in of_module else value for key, value in vars(self).items()
            }
            vars(twin).update(state, units=[unit.twin(memo) for unit in self.units])
        finally:
            for unit in running:
                unit.to_unsharded()
            self._attach()
        twin._begin()
        return twin

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(NOT_ALONE)

    def _require_same_params(self) -> None:
        for name, param in self.module.named_parameters():
            if self._addresses.get(param) != param.data_ptr():
                raise RuntimeError(
                    f"{name} has come or was moved since the model was sharded, and no rank would gather it: change "
                    "the model, its dtype and its device before it is sharded; call it with other parameters inside "
                    "`with model.unsharded():`, where it is a plain model"
                )


def _require_backward(wrapper: weakref.ref[FullyShardedDataParallel]) -> None:
    """Refuse a step without gradients after a forward pass whose backward pass did not come by."""
    model = wrapper()
    if model is not None and model._passes.awaits_backward:
        raise RuntimeError(
            "no gradient has come since the last forward pass, so this step would change nothing. Call "
            "loss.backward() without inputs=: autograd does not know the sharded parameters, which get their gradients "
            "from the model"
        )
