"""The memory of stage 3: a bucket of parameters of which this rank keeps its shard, and now and then has all.

    shard       |----|                  always: what the optimizer updates, through the sharded parameters
    unsharded   |----|----|----|----|   filled by an all-gather, and empty again when it was used
    gradient    |----|----|----|----|   filled from the parameters' gradients when backward is over; reduced to a shard

`unsharded` is one tensor for good. Freeing it means that its storage is resized to 0 bytes: the unsharded parameters
are views of it, autograd has saved them for the backward pass, and when the storage is filled again, what was saved has
its values back. Meanwhile the parameters count as changed, so that autograd refuses to read what it saved of them.

Source: FSDP, 2304.11277, section 3.2, and the flat parameters of PyTorch's FSDP1.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.flat_collectives import all_gather_single, reduce_scatter_single

from ..gradient_hooks import accumulate, has_hooks
from ..partition.partition import Bucket
from ..shard_store import ShardStore
from .unsharded_params import UnshardedParameter, as_plain


class ShardedBucket:
    """The parameters of one bucket, of one dtype, on one device; all trained or all frozen.

    **Communication** (n bytes in the bucket, padding included): once, a broadcast of n bytes from the group's first
    rank. `unshard` is an all-gather of n bytes, `reduce_gradients` a reduce-scatter of n bytes; of both, each rank
    sends n (N-1)/N. Nobody waits for them until `wait_for_unshard` and `Reduction.finish`.
    **Memory**: n/N for the shard; n from `unshard` to `reshard`; in backward up to n for the gradients of the unsharded
    parameters, which autograd makes one by one, and n from `reduce_gradients`, which frees those, until
    `Reduction.finish`; and n/N for the gradients of the sharded parameters.

    Args:
        bucket: of the plan.
        parameters: as `bucket.parameters` names them. They lose their meaning: the sharded and the unsharded ones
            replace them.
        group: ranks that divide the bucket; None: all.
        store: where the shard is, and how it is sent; None: on the device, as it is.

    Attributes:
        shard: (bucket.shard,), this rank's.
        sharded_params: of each parameter what lies in the shard, (k,), in the same memory; k may be 0.
        unsharded: (bucket.numel,), without memory unless it is gathered.
        unsharded_params: views of `unsharded` with the parameters' shapes, for forward and backward passes. One that is
            kept when it is freed says so when it is read.
        divisor: number of ranks over which gradients are averaged.
    """

    def __init__(
        self,
        bucket: Bucket,
        parameters: Sequence[nn.Parameter],
        *,
        group: dist.ProcessGroup | None = None,
        store: ShardStore | None = None,
    ) -> None:
        self.bucket, self.group, self.divisor = bucket, group, bucket.num_ranks
        self.store = (store or ShardStore()).of_dtype(parameters[0].dtype)
        self._shapes = [parameter.shape for parameter in parameters]
        own = {part.parameter: (part.offset, part.numel) for part in bucket.slices(dist.get_rank(group))}
        self._places = [own.get(number, (0, 0)) for number in bucket.parameters]  # in the shard: offset and size
        with torch.no_grad():
            flat = parameters[0].new_zeros(bucket.numel)
            for parameter, view in zip(parameters, self._views(flat), strict=True):
                view.copy_(parameter)
            self._make_equal(flat)
            self.shard = self.store.keep(self._own(flat))
        parts = zip(self._parts(self.shard), parameters, strict=True)
        self.sharded_params = [nn.Parameter(part, parameter.requires_grad) for part, parameter in parts]
        self._make_unsharded(flat.device)

    def _make_equal(self, flat: torch.Tensor) -> None:
        dist.broadcast(flat, group=self.group, group_src=0)

    def _make_unsharded(self, device: torch.device) -> None:
        dtype = self.store.policy.gather_dtype(self.shard.dtype)
        self.unsharded = torch.empty(self.bucket.numel, dtype=dtype, device=device)
        # By `.data`, so that filling it is no change of a saved tensor to autograd: backward is to have these values.
        views = zip(self._views(self.unsharded.data), self.sharded_params, strict=True)
        self.unsharded_params = [UnshardedParameter(view, param.requires_grad) for view, param in views]
        self._nbytes = self.unsharded.untyped_storage().nbytes()
        self._sent, self._work = self.shard, None
        self._versions: tuple[int, ...] = ()  # before they were freed
        self._free()

    def _own(self, flat: torch.Tensor) -> torch.Tensor:
        return flat.view(-1, self.bucket.shard)[dist.get_rank(self.group)]

    def _parts(self, shard: torch.Tensor) -> list[torch.Tensor]:
        """The part of each parameter that lies in a shard, (bucket.shard,)."""
        return [shard[offset:][:size] for offset, size in self._places]

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The view of all values of each parameter, (bucket.numel,)."""
        places = zip(self.bucket.offsets, self.bucket.sizes, self._shapes, strict=True)
        return [flat[offset:][:size].view(shape) for offset, size, shape in places]

    def params_in(self, flat: torch.Tensor) -> list[nn.Parameter]:
        """Parameters that are views of all values, (bucket.numel,)."""
        views = zip(self._views(flat), self.sharded_params, strict=True)
        return [nn.Parameter(view, param.requires_grad) for view, param in views]

    # All parameters

    def unshard(self) -> None:
        """Give `unsharded` its memory, and begin to fill it from all ranks' shards. Not again before `reshard`."""
        self.unsharded.untyped_storage().resize_(self._nbytes)
        self._sent = self.store.to_gather(self.shard, self.unsharded.device)
        self._work = all_gather_single(self.unsharded, self._sent, group=self.group, async_op=True)

    def wait_for_unshard(self) -> None:
        """The unsharded parameters have their values when this returns."""
        if self._work is not None:
            work, self._work = self._work, None
            work.wait()
            if self._sent.data_ptr() != self.shard.data_ptr():  # a rounded copy, or one of the host's shard
                self._sent.untyped_storage().resize_(0)
        self._set_versions(self._versions)
        self._versions = ()

    def reshard(self) -> None:
        """Free the memory of `unsharded`. Autograd refuses to read it until the next `wait_for_unshard`."""
        with suppress(RuntimeError):  # no values are wanted, but it would write into freed memory
            self.wait_for_unshard()
        self._free()

    def _free(self) -> None:
        self.unsharded.untyped_storage().resize_(0)
        with as_plain():
            self._versions = tuple(param._version for param in self.unsharded_params)
        self._set_versions(tuple(version + 1 for version in self._versions))

    def _set_versions(self, versions: tuple[int, ...]) -> None:
        """The version that autograd compares with the one at which it saved a parameter, or a view of it."""
        torch._C._autograd._unsafe_set_version_counter(tuple(self.unsharded_params)[: len(versions)], versions)

    def gather_copy(self) -> torch.Tensor:
        """All values in new memory and in the shard's precision, (bucket.numel,)."""
        shard = self.store.on_device(self.shard, self.unsharded.device)
        values = shard.new_empty(self.bucket.numel)
        all_gather_single(values, shard, group=self.group)
        return values

    def whole(self) -> dict[int, torch.Tensor]:
        """Copy each parameter whole, by its number."""
        return dict(zip(self.bucket.parameters, self._views(self.gather_copy()), strict=True))

    def set_from(self, values: torch.Tensor) -> None:
        """Take this rank's shard from all values, (bucket.numel,)."""
        self.store.write(self.shard, self._own(values))

    def twin(self, sharded_params: list[nn.Parameter]) -> ShardedBucket:
        """A bucket with the same values and its own memory, for a copy of the model with these sharded parameters."""
        twin = copy.copy(self)
        twin.shard, twin.sharded_params = self.store.copy(self.shard), sharded_params
        for param, part in zip(sharded_params, twin._parts(twin.shard), strict=True):
            param.data = part
        twin._make_unsharded(self.unsharded.device)
        return twin

    # All gradients

    @torch.no_grad()
    def reduce_gradients(self) -> Reduction | None:
        """Begin to average the gradients over the ranks, zeros for a missing one. None: nothing is trained here."""
        if not any(param.requires_grad for param in self.sharded_params):
            return None
        gradient = torch.zeros_like(self.unsharded)
        with as_plain():
            for param, view, number in zip(
                self.unsharded_params, self._views(gradient), self.bucket.parameters, strict=True
            ):
                if param.grad is not None:
                    _refuse_sparse(param.grad, number)
                    view.copy_(param.grad)
        self.drop_gradients()
        sent = self.store.to_reduce(gradient, self.divisor)
        if sent is not gradient:
            gradient.untyped_storage().resize_(0)
        return Reduction(self, sent)

    def drop_gradients(self) -> None:
        """Forget the full gradients."""
        with as_plain():
            for param in self.unsharded_params:
                param.grad = None

    def scattered(self, reduced: torch.Tensor) -> Reduction | None:
        """Called when the gradients of the shard are added up. Returns what is to be finished yet."""
        self.hand_out(reduced)
        return None

    @torch.no_grad()
    def hand_out(self, reduced: torch.Tensor) -> None:
        """Add the gradients of the shard, reduced over the ranks, to those of the sharded parameters."""
        mean = self.store.to_gradient(reduced, self.shard, self.divisor)
        trained = [pair for pair in zip(self.sharded_params, self._parts(mean), strict=True) if pair[0].requires_grad]
        if any(param.grad is not None or has_hooks(param) for param, _ in trained):
            self.store.finish()  # the host adds it up now
        for param, gradient in trained:
            accumulate(param, gradient)


class Reduction:
    """A reduce-scatter that is under way."""

    def __init__(self, owner: ShardedBucket, gradient: torch.Tensor) -> None:
        self._owner, self._gradient = owner, gradient
        self._reduced = gradient.new_empty(owner.bucket.shard)
        self._work: Any = reduce_scatter_single(self._reduced, gradient, group=owner.group, async_op=True)

    def finish(self) -> Reduction | None:
        """Wait for it, free the full gradients, and hand out the shard's. Returns what is to be finished yet."""
        self._work.wait()
        self._gradient.untyped_storage().resize_(0)  # now, not when the backend lets go of it
        return self._owner.scattered(self._reduced)

    def drop(self) -> None:
        """Wait for it, and forget what it brought: the backward pass has failed."""
        self._work.wait()


def _refuse_sparse(gradient: torch.Tensor, number: int) -> None:
    if gradient.is_sparse:
        raise RuntimeError(
            f"parameter {number}, {tuple(gradient.shape)}, has a sparse gradient: it has no place in a shard. Build "
            "layers with sparse=False"
        )
