"""ZeRO stage 2: stage 1, and a hook. Gradients are reduced to shards while backward goes on, and then freed.

Stage 1 keeps all gradients until `step`, and needs 1/N of them. Here, as soon as the gradients of a bucket are
complete, they are reduce-scattered and freed, and this rank keeps its shard of their mean.

Source: ZeRO, 1910.02054, section 5.2; the reduce-scatter in hooks of DeepSpeed's stage 2.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

from dtlearn.sharing.flat_collectives import reduce_scatter_single
from dtlearn.sharing.wrapping import (
    BackwardPass,
    broadcast_module,
    call_before,
    guard_forward,
    in_backward_pass,
    require_same_model,
    require_wrapped,
)

from ..clipping import clip_grad_norm_
from ..refusals import refuse_clipping
from .zero1 import ZeroRedundancyOptimizer

Result = TypeVar("Result")


class ShardedGradients(nn.Module):
    """`page_zero2` with parameters that a pass may not reach, `no_sync()`, checkpointing, copies, changes and errors.

    A model whose gradients, after `backward()`, are in the pieces of its optimizer, averaged, and nowhere else.

        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, gradients="local", lr=1e-3)
        model = ShardedGradients(model, optimizer)

    The training loop stays as it is. Buckets are those of the optimizer (its `cap`): the last one is sent first, as
    backward reaches it first. All ranks begin with rank 0's parameters and buffers.

    **Communication** (n bytes of trained parameters, padded; each rank sends (N-1)/N of what is named): once, an
    all-gather of 16 bytes and a broadcast of parameters and buffers; in each backward pass outside `no_sync()`
    reduce-scatter of n bytes, a call for each bucket; in `optimizer.step()` all-gather of n bytes. So 2n (N-1)/N a
    step, and with A micro-batches that are each reduced (A + 1) n (N-1)/N.
    **Memory**: n/N of gradients after backward; in it, the gradients of buckets that are not complete, the buffer of
    one that is sent, and shards. Between micro-batches in `no_sync()` all gradients, n: what stage 2 saves is lost
    until the next reduction. Micro-batches that are each reduced add up in the shards, n/N, and cost the messages.

    A parameter without a gradient on some rank takes part with zeros, also if no rank has one. One that is frozen by
    now is not moved. One that `optimizer.add_param_group` has brought later is reduced with the others from then on.
    A copy, by `copy.deepcopy` or pickled, is a model of its own, with an own `optimizer`; of `module` alone, a plain
    one. To clip, take `clip_grad_norm_` of this class: torch's is refused after `backward()`: it finds none.

    Args:
        module: the model, on its device.
        optimizer: over its parameters, with gradients="local". Its group is this wrapper's.

    Attributes:
        module, optimizer: as given.

    Raises:
        ValueError: the optimizer expects averaged gradients, or has other parameters than the model; or as
            `require_same_model`.
        RuntimeError: the models of the ranks differ.
    """

    def __init__(self, module: nn.Module, optimizer: ZeroRedundancyOptimizer) -> None:
        super().__init__()
        check_optimizer_of(module, optimizer)
        require_same_model(module, group=optimizer.flat.group)
        broadcast_module(module, group=optimizer.flat.group)
        self.module, self.optimizer = module, optimizer
        self._sync, self._is_called, self._is_local = True, False, False
        self._missing: list[set[int]] = []  # by bucket: parameters whose gradients are not there yet
        self._next = 0  # place in the order of the bucket that is sent next, the same on every rank
        self._under_way: tuple[Any, ...] = ()
        self._follow_parameters()
        self._guard_module()

    def _follow_parameters(self) -> None:
        """Have autograd tell of the optimizer's parameters, of which there may be more than before."""
        flat = self.optimizer.flat
        refuse_clipping(flat.parameters, weakly(self._has_shards))
        self._order = list(reversed(flat.partition.buckets))
        self._bucket_of = {number: bucket.index for bucket in self._order for number in bucket.parameters}
        self._backward = BackwardPass(
            list(flat.parameters),
            begins=self.backward_begins,
            ready=self.gradient_is_ready,
            ends=self.backward_ends,
        )

    def _guard_module(self) -> None:
        """Have the module and the optimizer tell of calls that miss this wrapper, for as long as it is there."""
        guard_forward(self.module, weakly(self._require_wrapper))
        call_before(self.module, "zero_grad", weakly(self.optimizer.clear_shards))
        self.optimizer.register_step_pre_hook(weakly(self._require_reduced))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Guard a copy's own module and optimizer."""
        super().__setstate__(state)
        refuse_clipping(self.optimizer.flat.parameters, weakly(self._has_shards))
        self._guard_module()

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if len(self._bucket_of) < len(self.optimizer.flat.parameters):
            self._follow_parameters()
        self._is_called = True
        try:
            outputs = self.module(*inputs, **kwargs)
        finally:
            self._is_called = False
        if torch.is_grad_enabled():
            require_wrapped(self.module, set(map(id, self.optimizer.flat.parameters)))
            self._backward.follow(outputs, self._sync)
            self._is_local = not self._sync
        return outputs

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset all gradients, also those in the shards: as `optimizer.zero_grad`."""
        super().zero_grad(set_to_none)
        self.optimizer.clear_shards()

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """`dtlearn.zero.clip_grad_norm_` of the shards: by the norm over all ranks, which is returned."""
        return clip_grad_norm_(self.optimizer.pieces, max_norm, norm_type, group=self.optimizer.flat.group)

    def full_params(self) -> dict[str, torch.Tensor]:
        """Copies of all parameters, whole, by name. In stage 2 every rank has them.

        **Communication**: none. **Memory**: the parameters once more.
        """
        return {name: parameter.detach().clone() for name, parameter in self.module.named_parameters()}

    def backward_begins(self, unused: Sequence[int]) -> None:
        """Called before the first gradient."""
        self._finish(keep=False)  # an error has ended the last pass, if anything is under way
        self._missing = [set(bucket.parameters) for bucket in self.optimizer.flat.partition.buckets]
        self._next = 0

    def gradient_is_ready(self, number: int) -> None:
        """Called for each gradient, as soon as it is complete: send the buckets that are."""
        missing = self._missing[self._bucket_of[number]]
        if number not in missing:
            self._finish(keep=False)
            raise RuntimeError(
                f"parameter {number} got a second gradient in one backward pass, and its bucket may "
                "have been sent: checkpointing with use_reentrant=True does that to a layer that is "
                "used twice. Use use_reentrant=False"
            )
        missing.remove(number)
        while self._next < len(self._order) and not self._missing[self._order[self._next].index]:
            self._launch(self._order[self._next].index)
            self._next += 1

    def _launch(self, b: int) -> None:
        """Begin to reduce a bucket, and free its gradients."""
        self._finish()  # one at a time: its buffer takes memory
        flat = self.optimizer.flat
        members = [flat.parameters[number] for number in flat.partition.buckets[b].parameters]
        gradient = flat.flatten(b, [parameter.grad for parameter in members])  # divided by N
        for parameter in members:
            parameter.grad = None
        shard = torch.empty_like(flat.shards[b])
        work = reduce_scatter_single(shard, gradient, group=flat.group, async_op=True)
        self._under_way = (work, b, gradient, shard)

    def _finish(self, keep: bool = True) -> None:
        """Wait for the bucket that is under way, and add its shard to the gradients; keep=False: discard it."""
        if not self._under_way:
            return
        (work, b, gradient, shard), self._under_way = self._under_way, ()
        work.wait()
        gradient.untyped_storage().resize_(0)  # now, not when the backend drops it
        if keep:
            add_gradients(self.optimizer, b, shard)

    def backward_ends(self) -> None:
        """Called after the last gradient. Buckets with gradients that did not come are sent now."""
        for bucket in self._order[self._next :]:
            self._launch(bucket.index)
        self._finish()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this block gradients are only added up on each rank, all of them; it is the forward pass that decides."""
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    def _require_wrapper(self) -> None:
        if torch.is_grad_enabled() and not (self._is_called or in_backward_pass()):
            raise RuntimeError(
                "the module was called itself: its gradients would not be reduced. Call the ShardedGradients that it "
                "is in; or use torch.no_grad(), if no gradients are wanted"
            )

    def _has_shards(self) -> bool:
        return self.optimizer.is_reduced

    def _require_reduced(self) -> None:
        if self._is_local and any(parameter.grad is not None for parameter in self.optimizer.flat.parameters):
            raise RuntimeError(
                "the last backward pass was in no_sync(), and its gradients were not reduced: forward and backward of "
                "the last micro-batch belong outside of it"
            )


def weakly(method: Callable[[], Result]) -> Callable[..., Result | None]:
    """A function that calls a bound method as long as its object is there, and does not keep it alive."""
    reference = weakref.WeakMethod(method)

    def call(*_: Any) -> Result | None:
        return None if (alive := reference()) is None else alive()

    return call


def add_gradients(optimizer: ZeroRedundancyOptimizer, b: int, shard: torch.Tensor) -> None:
    """Give the pieces in bucket `b` this shard of gradients, beside what they have from earlier micro-batches."""
    flat = optimizer.flat
    pieces = [flat.pieces[own.parameter] for own in flat.slices[b]]
    earlier = [piece.grad for piece in pieces]
    flat.set_gradients(b, shard)
    for piece, before in zip(pieces, earlier, strict=True):
        if before is not None and piece.grad is not None:
            piece.grad.add_(before)
    optimizer.mark_reduced(b)


def check_optimizer_of(module: nn.Module, optimizer: ZeroRedundancyOptimizer) -> None:
    """Check that an optimizer is for local gradients, and has the trained parameters of a model and no others.

    Raises:
        ValueError: it is not so.
    """
    if optimizer.gradients != "local":
        raise ValueError(f"the optimizer has gradients={optimizer.gradients!r}: build it with gradients='local'")
    trained = {id(parameter): name for name, parameter in module.named_parameters() if parameter.requires_grad}
    known = set(map(id, optimizer.flat.parameters))
    if missing := [name for number, name in trained.items() if number not in known]:
        raise ValueError(f"{len(missing)} parameters of the model are not in the optimizer, {missing[0]} for one")
    if others := len(known - trained.keys()):
        raise ValueError(f"the optimizer has {others} parameters that are not trained in this model")
