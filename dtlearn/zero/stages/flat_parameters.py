"""A model's parameters as views of flat buffers, of which this rank owns a shard: the storage of stages 1 and 2.

Sources: ZeRO, 1910.02054, sections 5.1 and 5.2; the flat buffers of DeepSpeed's stages 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.flat_collectives import all_gather_single, reduce_scatter_single
from dtlearn.sharing.wrapping import copy_in_group

from ..partition.flat import plan_flat
from ..partition.partition import Bucket, Partition, Slice
from ..partition.whole_tensors import plan_whole_tensors

Layout = Literal["flat", "whole tensors"]
Cost = Callable[[torch.Size], float]


class FlatParameters:
    """Parameters that lie in buckets (see `partition`), and this rank's shard of each.

    The parameters stay the objects they were, with the values they had; their memory moves into the buffers. Move the
    model to its device and dtype before: later they would leave the buffers, an error at the next `all_gather`.

    An optimizer is built over `pieces`: one `nn.Parameter` for each parameter, the part of it in this rank's shard, in
    the same memory. It is a vector, or, in the layout "whole tensors", has the parameter's shape. Where this rank owns
    nothing it is empty, so that groups, names and numbers are the same on all ranks. In the flat layout it then has an
    empty gradient, as with `fully_shard`, and so a state of the optimizer. In the layout "whole tensors" it has no
    gradient: an optimizer that needs whole tensors cannot update an empty one.

    **Communication**: with n bytes in all buffers, `all_gather` is a call for each bucket and sends n (N-1)/N in all;
    so does `reduce_scatter` of all buckets. Building sends nothing: ranks begin with the same parameters, as DDP or
    `broadcast_module` leaves them.
    **Memory**: none but the parameters and the padding. While it is built, one bucket more; in `reduce_scatter`, one
    bucket of gradients, and a shard that is its result.

    Args:
        params: parameters that are trained; each once, on all ranks in the same order.
        group: ranks that divide them; None: all.
        cap: elements that close a bucket; None: one bucket for each dtype and device. Only for the flat layout.
        layout: "flat", cut anywhere, or "whole tensors", each on one rank.
        cost: of the update of a tensor of this shape; whole tensors are balanced by it. None: elements.

    Attributes:
        group, rank, num_ranks: the group, this rank in it, and N.
        parameters: in their order.
        partition: who owns what, by the parameters' places in `parameters`.
        buffers: of each bucket, (N * shard,).
        shards: of each bucket this rank's part, (shard,), in the same memory.
        slices: of each bucket what lies in it, `Bucket.slices` of this rank.
        empty: of each bucket {number: the gradient of its piece}, where this rank has no element and the gradient is an
            empty tensor; it is the same one in every step. None in the layout "whole tensors".
        pieces: of each parameter this rank's part.

    Raises:
        ValueError: this rank is not in the group; a parameter comes twice, or is frozen, sparse or without memory.
        TypeError: a parameter is no floating-point tensor.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        *,
        group: dist.ProcessGroup | None = None,
        cap: int | None = None,
        layout: Layout = "flat",
        cost: Cost | None = None,
    ) -> None:
        self.group, self.rank, self.num_ranks = group, dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("this rank is not in the group: build it on the group's ranks only")
        if layout not in ("flat", "whole tensors"):
            raise ValueError(f"layout must be 'flat' or 'whole tensors', got {layout!r}")
        self.layout, self.cap, self.cost = layout, cap, cost
        self.parameters: list[nn.Parameter] = []
        self.pieces: list[nn.Parameter] = []
        self.buffers: list[torch.Tensor] = []
        self.shards: list[torch.Tensor] = []
        self.slices: list[tuple[Slice, ...]] = []
        self.empty: list[dict[int, torch.Tensor]] = []
        self._additions: list[int] = []  # of each parameter: which call of `add` brought it
        self.add(params)

    def add(self, params: Iterable[nn.Parameter]) -> None:
        """Take in more parameters, in buckets of their own. All ranks call it, with the same ones."""
        params = list(params)
        check_parameters(params, self.parameters)
        addition = len(self.buffers)
        self.parameters += params
        self._additions += [addition] * len(params)
        self.partition = self._plan()
        self.pieces += [nn.Parameter(self.empty_piece(p)) for p in params]
        for bucket in self.partition.buckets[len(self.buffers) :]:
            self._rebase(bucket)

    def _plan(self) -> Partition:
        """The buckets that were there before come out as they were: additions are never mixed."""
        sizes = [p.numel() for p in self.parameters]
        kinds = [(a, p.dtype, p.device) for a, p in zip(self._additions, self.parameters, strict=True)]
        if self.layout == "flat":
            return plan_flat(sizes, self.num_ranks, self.cap, kinds=kinds)
        costs = None if self.cost is None else [self.cost(p.shape) for p in self.parameters]
        return plan_whole_tensors(sizes, self.num_ranks, costs=costs, kinds=kinds)

    @torch.no_grad()
    def _rebase(self, bucket: Bucket) -> None:
        """Move a bucket's parameters into one new buffer."""
        buffer = self.parameters[bucket.parameters[0]].new_zeros(bucket.numel)
        for parameter, view in self._views(bucket, buffer):
            parameter.data = view.copy_(parameter)  # the old memory is free
        self.buffers.append(buffer)
        self._cut(bucket, buffer)

    def _cut(self, bucket: Bucket, buffer: torch.Tensor) -> None:
        """Make this rank's shard of a buffer, and its pieces, views of it."""
        shard, slices = buffer[self.rank * bucket.shard :][: bucket.shard], bucket.slices(self.rank)
        for piece in slices:
            values = shard[piece.offset :][: piece.numel]
            if self.layout == "whole tensors":
                values = values.view_as(self.parameters[piece.parameter])
            self.pieces[piece.parameter].data = values
        without = set(bucket.parameters) - {piece.parameter for piece in slices} if self.layout == "flat" else set()
        self.shards.append(shard)
        self.slices.append(slices)
        self.empty.append({number: torch.empty_like(self.pieces[number]).detach() for number in sorted(without)})

    def __deepcopy__(self, memo: dict[int, Any]) -> FlatParameters:
        return copy_in_group(self, memo, self.group)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Put a copy's parameters, which were copied one by one, into its buffers again."""
        self.__dict__.update(state)
        own = (dist.get_rank(self.group), dist.get_world_size(self.group))
        if own != (self.rank, self.num_ranks):
            raise ValueError(
                f"expected the shards of rank {own[0]} of {own[1]}, but got those of rank {self.rank} of "
                f"{self.num_ranks}: each rank loads its own. State dicts fit any number of ranks"
            )
        self.shards, self.slices, self.empty = [], [], []
        for bucket, buffer in zip(self.partition.buckets, self.buffers, strict=True):
            for parameter, view in self._views(bucket, buffer):
                parameter.data = view
            self._cut(bucket, buffer)

    def empty_piece(self, parameter: torch.Tensor) -> torch.Tensor:
        """A piece without elements: a vector, or, of whole tensors, with as many dimensions as they have."""
        rows = parameter.shape[1:] if self.layout == "whole tensors" else ()
        return parameter.new_empty(0, *rows)

    def _views(self, bucket: Bucket, buffer: torch.Tensor) -> Iterable[tuple[nn.Parameter, torch.Tensor]]:
        for number, size, offset in zip(bucket.parameters, bucket.sizes, bucket.offsets, strict=True):
            parameter = self.parameters[number]
            yield parameter, buffer[offset:][:size].view(parameter.shape)

    @torch.no_grad()
    def all_gather(self) -> None:
        """Fetch the other ranks' shards: all parameters have their values afterwards.

        Raises:
            RuntimeError: parameters have left the buffers.
        """
        self.require_in_buffers()
        for buffer, shard in zip(self.buffers, self.shards, strict=True):
            all_gather_single(buffer, shard, group=self.group)  # in place: the shard is in the buffer
        for parameter in self.parameters:  # so that a backward pass with the old values is an error
            torch.autograd.graph.increment_version(parameter)

    @torch.no_grad()
    def reduce_scatter(self, b: int, grads: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Average the gradients of bucket `b` over the ranks, and keep this rank's shard of the result.

        Args:
            b: number of the bucket; all ranks reduce their buckets in the same order.
            grads: of its parameters, in the order of `partition.buckets[b].parameters`; None counts
                as zeros.

        Returns:
            The shard of the mean, (shard,).
        """
        shard = torch.empty_like(self.shards[b])
        reduce_scatter_single(shard, self.flatten(b, grads), group=self.group)
        return shard

    @torch.no_grad()
    def flatten(self, b: int, grads: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """This rank's gradients of bucket `b`, divided by N, in a buffer like it, (N * shard,).

        Raises:
            RuntimeError: one is sparse.
        """
        flat = torch.zeros_like(self.buffers[b])
        views = self._views(self.partition.buckets[b], flat)
        for number, (_, view), grad in zip(self.partition.buckets[b].parameters, views, grads, strict=True):
            if grad is not None:
                require_dense(number, grad)
                torch.div(grad, self.num_ranks, out=view)  # before the sum, which could overflow in float16
        return flat

    def set_gradients(self, b: int, shard: torch.Tensor) -> None:
        """Give the pieces in bucket `b` their gradients: views of a shard of gradients, (shard,).

        A piece whose parameter has been frozen since keeps the gradient that it has, or none: nothing moves it.
        """
        for own in self.slices[b]:
            if self.parameters[own.parameter].requires_grad:
                piece = self.pieces[own.parameter]
                piece.grad = shard[own.offset : own.offset + own.numel].view_as(piece)
        for number, gradient in self.empty[b].items():
            if self.parameters[number].requires_grad:
                self.pieces[number].grad = gradient

    def require_in_buffers(self) -> None:
        """Check that the parameters are still views of the buffers.

        Raises:
            RuntimeError: one is not.
        """
        for bucket, buffer in zip(self.partition.buckets, self.buffers, strict=True):
            for number, offset, size in zip(bucket.parameters, bucket.offsets, bucket.sizes, strict=True):
                parameter = self.parameters[number]
                address = buffer.data_ptr() + offset * buffer.element_size()
                if size and (parameter.data_ptr() != address or parameter.dtype != buffer.dtype):
                    raise RuntimeError(
                        f"parameter {number}, {tuple(parameter.shape)}, has left the flat buffer that it was put "
                        "into: the model was moved or cast afterwards, or another optimizer took it over. Build "
                        "the optimizer last, and only one"
                    )


def require_dense(number: int, gradient: torch.Tensor) -> None:
    """Check that a gradient can lie in a flat buffer.

    Raises:
        RuntimeError: it is sparse.
    """
    if gradient.is_sparse:
        raise RuntimeError(
            f"parameter {number}, {tuple(gradient.shape)}, has a sparse gradient: it has no place in a shard. Build "
            "the layer with sparse=False"
        )


def check_parameters(params: Sequence[nn.Parameter], known: Sequence[nn.Parameter] = ()) -> None:
    """Check that these can lie in flat buffers, beside the known ones.

    Raises:
        ValueError, TypeError: as `FlatParameters`.
    """
    seen = set(map(id, known))
    for number, parameter in enumerate(params):
        if not isinstance(parameter, torch.Tensor) or not parameter.is_floating_point():
            what = parameter.dtype if isinstance(parameter, torch.Tensor) else type(parameter).__name__
            raise TypeError(f"parameter {number} is {what}: only floating-point tensors can be trained")
        if id(parameter) in seen:
            raise ValueError(
                f"parameter {number}, {tuple(parameter.shape)}, comes twice: a tied parameter is given once, as "
                "model.parameters() does"
            )
        if not parameter.requires_grad or parameter.layout != torch.strided or parameter.is_meta:
            raise ValueError(
                f"parameter {number} is frozen, sparse or on the meta device: only what is trained, dense and has "
                "memory lies in flat buffers"
            )
        seen.add(id(parameter))
