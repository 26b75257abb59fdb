"""Data parallelism as it is done: gradients travel in buckets while backward is still at work.

Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, and the
interface of `torch.nn.parallel.DistributedDataParallel`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.comm_hooks import Hook
from dtlearn.sharing.gradient_buckets import MIB, Bucket, describe, plan_buckets
from dtlearn.sharing.wrapping.copies import copy_in_group
from dtlearn.sharing.wrapping.replicas import broadcast_module, broadcast_tensors, require_same_model, require_wrapped

from .join import Join
from .reducer import Reducer
from .unused_parameters import unused_parameters


class DistributedDataParallel(nn.Module):
    """A copy of the model on each rank; after `backward()` every copy has the mean of all gradients.

    Wrap the model when it is on its device, and give the wrapper's parameters to the optimizer. It averages; it neither
    sums nor steps: that every rank steps alike is what keeps the copies equal.

    **Communication** (P bytes of gradients in K buckets, B bytes of buffers):
        once: all-gather of 16 bytes, broadcast of parameters and buffers from rank 0, one call per dtype
        each forward pass in training mode outside `no_sync()`: broadcast of the B bytes of buffers, one call per dtype
        each backward pass outside `no_sync()`: K all-reduces of P bytes together, launched while backward runs
        with find_unused_parameters: one more, of 4 bytes per parameter
    **Memory**: the buckets, P bytes. With `gradient_as_bucket_view` the gradients lie in them: P bytes less, except
    while a gradient that autograd has just made waits to be copied (after `zero_grad(set_to_none=True)`, torch's
    default; with `set_to_none=False` autograd adds into the bucket itself).

    Where it differs from torch's:
        buckets keep the order of the plan; torch has one bucket per dtype in the first step, then plans from the order
        in which gradients came, and with find_unused_parameters it plans once, in registration order, reversed;
        buffers are sent in training mode only, so evaluation may be uneven: ranks that share one call
        `broadcast_module(model.module)` first; torch sends them in the first forward pass after a synchronised one;
        a parameter without a gradient is an error at the end of that `backward()`, not of the next `forward()`;
        each forward pass decides for its own backward passes, also for a second one over a retained graph, or for one
        that comes after other forward passes; torch averages in the first backward pass only.

    Args:
        module: the model; the same shapes on every rank, at least one parameter that requires a gradient.
        group: ranks that train together; None: all.
        bucket_cap_mb: MiB that close a bucket.
        first_bucket_mb: MiB that close the first one, if less than `bucket_cap_mb`; None: as the others.
        broadcast_buffers: give all ranks the buffers of rank 0 (running statistics, say) before each forward pass. At
            the start they are sent in any case, as with torch's `forward_sync_buffers`.
        find_unused_parameters: parameters that the output does not depend on get the mean of the other ranks'
            gradients, and stay without one if no rank has any. It costs a walk over the graph and the small all-reduce.
            Every rank has to use at least one parameter.
        gradient_as_bucket_view: see **Memory**.

    Raises:
        ValueError: a bucket of less than a byte, or a rank that is not in the group.
        RuntimeError: there is nothing to train, or the models of the ranks differ.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        group: dist.ProcessGroup | None = None,
        bucket_cap_mb: float = 25,
        first_bucket_mb: float | None = 1,
        broadcast_buffers: bool = True,
        find_unused_parameters: bool = False,
        gradient_as_bucket_view: bool = False,
    ) -> None:
        super().__init__()
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not trained:
            raise RuntimeError("no parameter of this model requires a gradient: there is nothing to train together")
        require_same_model(module, group=group)
        broadcast_module(module, group=group)
        self.module = module
        self.require_backward_grad_sync = True
        self._group = group
        self._broadcast_buffers = broadcast_buffers
        self._find_unused = find_unused_parameters
        self._join: Join | None = None
        first_mb = bucket_cap_mb if first_bucket_mb is None else min(first_bucket_mb, bucket_cap_mb)
        nbytes, kinds = describe([p for _, p in trained])
        plan = plan_buckets(nbytes, cap=int(bucket_cap_mb * MIB), first_cap=int(first_mb * MIB), kinds=kinds)
        self._reducer = Reducer(
            trained,
            plan,
            group=group,
            gradient_as_bucket_view=gradient_as_bucket_view,
            find_unused_parameters=find_unused_parameters,
        )

    @property
    def buckets(self) -> list[Bucket]:
        """The plan; its numbers count `parameter_names`."""
        return self._reducer.plan

    @property
    def parameter_names(self) -> list[str]:
        """The parameters that are averaged, in registration order."""
        return self._reducer.names

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        backward_follows = torch.is_grad_enabled()
        sync = backward_follows and self.require_backward_grad_sync
        source = 0
        if sync and self._join is not None:
            source = self._join.announce()
        if sync and self.training:
            self._send_buffers(source)
        outputs = self.module(*inputs, **kwargs)
        if backward_follows:
            require_wrapped(self.module, set(map(id, self._reducer.parameters)))
            find = sync and self._find_unused
            unused = unused_parameters(outputs, self._reducer.parameters) if find else ()
            self._reducer.follow(outputs, sync, unused)
        return outputs

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this block gradients are only added up on each rank, for accumulation over micro-batches.

        It is the forward pass that decides: the last micro-batch's forward and backward both belong outside.
        """
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: Any, hook: Hook) -> None:
        """Let `hook(state, bucket)` do the communication of each bucket; see `comm_hooks.py`.

        Raises:
            TypeError: the hook cannot be called.
            RuntimeError: there is one already.
        """
        if not callable(hook):
            raise TypeError(f"a communication hook is a function hook(state, bucket), not a {type(hook).__name__}")
        if self._reducer.hook is not None:
            raise RuntimeError("there is a communication hook already: one model has one")
        self._reducer.hook, self._reducer.hook_state = hook, state

    def join(self, divide_by_initial_world_size: bool = True) -> Join:
        """For a loop that may have fewer batches on some ranks than on others: `with model.join(): ...`; see `Join`."""
        return Join(self, divide_by_initial_world_size, group=self._group)

    def join_with(self, join: Join | None) -> None:
        """Part of what `Join` asks of a model; see `join.Joinable` for this and the next three."""
        self._join = join

    def average_over(self, count: int) -> None:
        """Divide the sums of gradients by so many ranks from now on."""
        self._reducer.divisor = count

    def shadow_step(self, source: int) -> None:
        """Take part in a step of other ranks with zeros; buffers come from rank `source` of the group."""
        if self.training:
            self._send_buffers(source)
        self._reducer.shadow()

    def copy_from(self, rank: int) -> None:
        """Give every rank of the group the parameters of one, and its buffers if they are sent at all."""
        broadcast_module(self.module, rank, buffers=self._broadcast_buffers, group=self._group)

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedDataParallel:
        return copy_in_group(self, memo, self._group)

    def _send_buffers(self, source: int) -> None:
        if self._broadcast_buffers:
            broadcast_tensors(list(self.module.buffers()), source, group=self._group)
