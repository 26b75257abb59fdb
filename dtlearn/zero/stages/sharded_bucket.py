"""The memory of stage 3: a bucket of parameters of which this rank keeps its shard, and now and then has all.

    shard       |----|                  always: what the optimizer updates, through its pieces
    full        |----|----|----|----|   filled by an all-gather, and empty again when it was used
    gradient    |----|----|----|----|   filled from the parameters' gradients when backward is over; reduced to a shard

`full` is one tensor for good. Freeing it means that its storage is resized to 0 bytes: the parameters are views of it,
autograd has saved them for the backward pass, and when the storage is filled again, what was saved has its values back.

Source: FSDP, 2304.11277, section 3.2, and the flat parameters of PyTorch's FSDP1.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.flat_collectives import all_gather_single, reduce_scatter_single
from dtlearn.sharing.host_memory import Host

from ..partition.partition import Bucket
from ..precision import MixedPrecisionPolicy

_AS_IT_IS = MixedPrecisionPolicy()


class ShardedBucket:
    """The parameters of one bucket, of one dtype, on one device; all trained or all frozen.

    **Communication** (n bytes in the bucket, padding included): once, a broadcast of n bytes from the group's first
    rank. `launch_gather` is an all-gather of n bytes, `launch_reduce` a reduce-scatter of n bytes; of both, each rank
    sends n (N-1)/N. Nobody waits for them until `wait` and `Reduction.finish`.
    **Memory**: n/N for the shard; n from `launch_gather` to `free`; in backward up to n for the gradients of
    `parameters`, which autograd makes one by one, and n from `launch_reduce`, which frees those, until
    `Reduction.finish`; and n/N for the gradients of the pieces.

    Args:
        bucket: of the plan.
        parameters: as `bucket.parameters` names them. They lose their meaning: `pieces` and `parameters` replace them.
        group: ranks that divide the bucket; None: all.
        policy: dtypes of what is gathered and of what is reduced.
        offload: the shard and its gradients are on this host; None: on the device.

    Attributes:
        shard: (bucket.shard,), this rank's.
        pieces: of each parameter what lies in the shard, (k,), an `nn.Parameter` in the same memory; k may be 0.
        full: (bucket.numel,), without memory unless it is gathered.
        parameters: views of `full` with the parameters' shapes, for forward and backward passes.
        divisor: number of ranks over which gradients are averaged.
    """

    def __init__(
        self,
        bucket: Bucket,
        parameters: Sequence[nn.Parameter],
        *,
        group: dist.ProcessGroup | None = None,
        policy: MixedPrecisionPolicy = _AS_IT_IS,
        offload: Host | None = None,
    ) -> None:
        self.bucket, self.group, self.divisor, self.offload = bucket, group, bucket.num_ranks, offload
        self.policy = policy if parameters[0].is_floating_point() else _AS_IT_IS
        rank = dist.get_rank(group)
        with torch.no_grad():
            flat = parameters[0].new_zeros(bucket.numel)
            for parameter, offset in zip(parameters, bucket.offsets, strict=True):
                flat[offset:][: parameter.numel()] = parameter.reshape(-1)
            self._make_equal(flat)
            shard = flat[rank * bucket.shard :][: bucket.shard]
            self.shard = shard.clone() if offload is None else offload.download(shard)
        self.pieces = [nn.Parameter(self.shard[:0], p.requires_grad) for p in parameters]
        self._offsets = {}  # of the pieces that are not empty, in the shard
        for piece in bucket.slices(rank):
            place = bucket.parameters.index(piece.parameter)
            values = self.shard[piece.offset :][: piece.numel]
            self.pieces[place] = nn.Parameter(values, parameters[place].requires_grad)
            self._offsets[place] = piece.offset
        self.full = torch.empty_like(flat, dtype=self.policy.gather_dtype(flat.dtype))
        # By `.data`, so that filling it is no change of a saved tensor to autograd: backward is to have these values.
        self._shapes = [parameter.shape for parameter in parameters]
        self.parameters = self.parameters_in(self.full.data)
        self._nbytes = self.full.untyped_storage().nbytes()
        self.full.untyped_storage().resize_(0)
        self._work: Any = None
        self._sent = self.shard

    def _make_equal(self, flat: torch.Tensor) -> None:
        source = 0 if self.group is None else dist.get_global_rank(self.group, 0)
        dist.broadcast(flat, source, group=self.group)

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        places = zip(self.bucket.offsets, self.bucket.sizes, self._shapes, strict=True)
        return [flat[offset:][:size].view(shape) for offset, size, shape in places]

    def parameters_in(self, flat: torch.Tensor) -> list[nn.Parameter]:
        """Parameters that are views of a flat tensor, (bucket.numel,)."""
        return [nn.Parameter(view, p.requires_grad) for view, p in zip(self._views(flat), self.pieces, strict=True)]

    # All parameters

    def launch_gather(self) -> None:
        """Give `full` its memory, and let it be filled. Not again before `free`."""
        self.full.untyped_storage().resize_(self._nbytes)
        self._sent = self.policy.to_gather(self._on_device())
        self._work = all_gather_single(self.full, self._sent, group=self.group, async_op=True)

    def wait(self) -> None:
        """The parameters have their values when this returns."""
        if self._work is not None:
            work, self._work = self._work, None
            work.wait()
            if self._sent.data_ptr() != self.shard.data_ptr():  # a rounded copy, or one of the host's shard
                self._sent.untyped_storage().resize_(0)

    def free(self) -> None:
        """Give the memory of `full` back."""
        with suppress(RuntimeError):  # no values are wanted, but it would write into freed memory
            self.wait()
        self.full.untyped_storage().resize_(0)

    def gather_copy(self) -> torch.Tensor:
        """All values in new memory, (bucket.numel,)."""
        shard = self._on_device()
        copy = shard.new_empty(self.bucket.numel)
        all_gather_single(copy, shard, group=self.group)
        return copy

    def set_from(self, copy: torch.Tensor) -> None:
        """Take this rank's shard from all values, (bucket.numel,)."""
        own = copy.view(-1, self.bucket.shard)[dist.get_rank(self.group)]
        self.shard.copy_(own if self.offload is None else self.offload.download(own))

    def _on_device(self) -> torch.Tensor:
        """The shard, or a copy of it if it is on the host."""
        if self.offload is None:
            return self.shard
        return self.offload.upload(self.shard, self.full.device)

    # All gradients

    @torch.no_grad()
    def launch_reduce(self) -> Reduction | None:
        """Begin to average the gradients over the ranks; where there is none, zeros. None: nothing is trained here."""
        if not any(piece.requires_grad for piece in self.pieces):
            return None
        gradient = torch.zeros_like(self.full)
        for parameter, view in zip(self.parameters, self._views(gradient), strict=True):
            if parameter.grad is not None:
                view.copy_(parameter.grad)
        self.drop_gradients()
        in_reduce_dtype = self.policy.to_reduce(gradient, self.divisor)
        if in_reduce_dtype is not gradient:
            gradient.untyped_storage().resize_(0)
        return Reduction(self, in_reduce_dtype)

    def drop_gradients(self) -> None:
        """Forget the full gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def scattered(self, reduced: torch.Tensor) -> Reduction | None:
        """Called when the gradients of the shard are added up. Returns what is to be finished yet."""
        self.hand_out(reduced)
        return None

    @torch.no_grad()
    def hand_out(self, reduced: torch.Tensor) -> None:
        """Add the gradients of the shard, reduced over the ranks, to those of its pieces."""
        mean = self.policy.to_shard(reduced, self.shard, self.divisor)
        if self.offload is not None:
            mean = self.offload.download(mean)
            if any(piece.grad is not None for piece in self.pieces):
                self.offload.finish()  # the host adds it up now
        for place, offset in self._offsets.items():
            piece = self.pieces[place]
            gradient = mean[offset:][: piece.numel()]
            if piece.requires_grad:  # it may have been frozen since
                piece.grad = gradient if piece.grad is None else piece.grad.add_(gradient)


class Reduction:
    """A reduce-scatter that is under way."""

    def __init__(self, owner: ShardedBucket, gradient: torch.Tensor) -> None:
        self._owner, self._gradient = owner, gradient
        self._reduced = gradient.new_empty(owner.bucket.shard)
        self._work: Any = reduce_scatter_single(self._reduced, gradient, group=owner.group, async_op=True)

    def finish(self) -> Reduction | None:
        """Wait for it, free the full gradients, and give the pieces theirs. Returns what is to be finished yet."""
        self._work.wait()
        self._gradient.untyped_storage().resize_(0)  # now, not when the backend lets go of it
        return self._owner.scattered(self._reduced)

    def drop(self) -> None:
        """Wait for it, and forget what it brought: the backward pass has failed."""
        self._work.wait()
