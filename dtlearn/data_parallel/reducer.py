"""The heart of `DistributedDataParallel`: gradients are collected into buckets, which leave while backward goes on.

When a parameter's gradient is complete (`BackwardPass` says when), it is copied into its place in its bucket. A
bucket that is full is launched: an all-reduce that nobody waits for yet. When backward has ended, all are waited for
and the means are copied back. Buckets are launched in the order of the plan, on every rank, whatever becomes ready
first: a collective pairs the k-th call of each rank, not calls of the same bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.comm_hooks import GradBucket, Hook
from dtlearn.sharing.gradient_buckets import Bucket, describe, validate_buckets
from dtlearn.sharing.wrapping.backward_hooks import BackwardPass


class _Slot:
    """One bucket's buffer and what is under way with it."""

    def __init__(self, bucket: Bucket, parameters: Sequence[nn.Parameter] | dict[int, nn.Parameter]) -> None:
        self.bucket = bucket
        self.members = [parameters[number] for number in bucket.parameters]
        sizes = [parameter.numel() for parameter in self.members]
        self.buffer = torch.zeros(sum(sizes), dtype=self.members[0].dtype, device=self.members[0].device)
        self.views = [v.view_as(p) for v, p in zip(self.buffer.split(sizes), self.members, strict=True)]
        self.missing = len(sizes)  # gradients that are not here yet
        self.under_way: Any = None  # a Work, or a hook's future

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has a buffer of its own, and views of that."""
        return _Slot, (self.bucket, dict(zip(self.bucket.parameters, self.members, strict=True)))


class Reducer:
    """Averages the gradients of some parameters in each backward pass that it was told to follow.

    Args:
        parameters: those that want a gradient, by name, in registration order.
        plan: their buckets; see `plan_buckets`.
        group: ranks that train together; None: all.
        gradient_as_bucket_view: `.grad` is a view of the bucket; see **Memory** in `ddp.py`.
        find_unused_parameters: some may get no gradient; see `ddp.py`.

    Raises:
        ValueError: the plan does not hold each parameter once.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        plan: Sequence[Bucket],
        *,
        group: dist.ProcessGroup | None,
        gradient_as_bucket_view: bool,
        find_unused_parameters: bool,
    ) -> None:
        named = list(parameters)
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        validate_buckets(plan, *describe(self.parameters))
        self.plan = list(plan)
        self.hook: Hook | None = None
        self.hook_state: Any = None
        self.divisor = dist.get_world_size(group)
        self._group = group
        self._as_views = gradient_as_bucket_view
        self._find_unused = find_unused_parameters
        self._slots = [_Slot(bucket, self.parameters) for bucket in plan]
        places = {n: (slot, i) for slot in self._slots for i, n in enumerate(slot.bucket.parameters)}
        self._places = [places[number] for number in range(len(named))]
        self._reset()
        self._backward = BackwardPass(
            self.parameters, begins=self.backward_begins, ready=self.gradient_is_ready, ends=self.backward_ends
        )
        self.follow = self._backward.follow  # to be called after each forward pass

    def shadow(self) -> None:
        """Take part in a backward pass of other ranks with nothing to give: every call that they make, with zeros."""
        zeros = [_Slot(bucket, self.parameters) for bucket in self.plan]  # not our own: gradients may lie in them
        for slot in zeros:
            self._launch(slot)
        if self._find_unused:
            self._count_used([])
        for slot in zeros:
            self._wait(slot)

    # During backward

    def _reset(self) -> None:
        self._ready: set[int] = set()
        self._next = 0  # the bucket that is launched next
        for slot in self._slots:
            if slot.under_way is not None:  # an error ended the last pass; its calls may still write to the buffer
                with suppress(RuntimeError):
                    slot.under_way.wait()
            slot.missing, slot.under_way = len(slot.members), None

    def backward_begins(self, unused: Sequence[int]) -> None:
        """Called before the first gradient. What will get none, as far as the graph shows, is ready now."""
        self._reset()
        for number in unused:
            self._put(number)

    def gradient_is_ready(self, number: int) -> None:
        """Called for each gradient, as soon as it is complete."""
        if number in self._ready:
            raise RuntimeError(
                f"the gradient of {self.names[number]} was complete already, and its bucket may have gone. "
                "Checkpointing with use_reentrant=True does that to a layer that is used twice, and to any with "
                "find_unused_parameters: use use_reentrant=False. So does one backward pass through two forward "
                "passes, one of which does not use the parameter"
            )
        self._put(number)
        self._launch_full()

    def _put(self, number: int) -> None:
        """Copy a gradient into its bucket, divided unless a hook is to do that: a sum could overflow in 16 bits."""
        parameter, (slot, place) = self.parameters[number], self._places[number]
        view, factor = slot.views[place], 1.0 if self.hook else 1.0 / self.divisor
        with torch.no_grad():
            if parameter.grad is None:
                view.zero_()
            elif parameter.grad.is_sparse:
                raise RuntimeError(f"{self.names[number]} has a sparse gradient, which buckets cannot hold")
            elif parameter.grad.data_ptr() == view.data_ptr():
                view.mul_(factor)
            else:
                torch.mul(parameter.grad, factor, out=view)
                if self._as_views:
                    self._require_same_kind(number, view)
                    parameter.grad = view
        self._ready.add(number)
        slot.missing -= 1

    def _require_same_kind(self, number: int, view: torch.Tensor) -> None:
        parameter = self.parameters[number]
        if (parameter.dtype, parameter.device) != (view.dtype, view.device):
            raise RuntimeError(
                f"{self.names[number]} was {view.dtype} on {view.device} when the model was wrapped, and is "
                f"{parameter.dtype} on {parameter.device} now: its gradient cannot be a view of its bucket. Wrap the "
                "model after it was moved and cast"
            )

    def _launch_full(self) -> None:
        while self._next < len(self._slots) and self._slots[self._next].missing == 0:
            self._launch(self._slots[self._next])
            self._next += 1

    def _launch(self, slot: _Slot) -> None:
        if self.hook is None:
            slot.under_way = dist.all_reduce(slot.buffer, group=self._group, async_op=True)
            return
        last = slot.bucket.index == len(self.plan) - 1
        bucket = GradBucket(slot.bucket.index, slot.buffer, slot.views, slot.members, last)
        future = self.hook(self.hook_state, bucket)
        if isinstance(future, torch.Tensor) or not hasattr(future, "wait"):
            raise TypeError(f"a communication hook has to return a Future of a tensor, not a {type(future).__name__}")
        slot.under_way = future

    # At its end

    def backward_ends(self) -> None:
        """Wait for the buckets and hand the means out. What no gradient came for leaves now: others wait for it."""
        absent = [number for number in range(len(self.parameters)) if number not in self._ready]
        frozen = {number for number in absent if not self.parameters[number].requires_grad}  # since they were wrapped
        for number in absent:
            self._put(number)
        self._launch_full()
        have = [number for number, parameter in enumerate(self.parameters) if parameter.grad is not None]
        used = self._count_used(have) if self._find_unused else None
        for slot in self._slots:
            self._wait(slot)
            for place, number in enumerate(slot.bucket.parameters):
                if number not in frozen and (used is None or used[number]):
                    self._hand_out(self.parameters[number], slot.views[place])
        if (absent := [number for number in absent if number not in frozen]) and not self._find_unused:
            names = ", ".join(self.names[number] for number in absent[:3]) + ", ..." * (len(absent) > 3)
            raise RuntimeError(
                f"{len(absent)} of {len(self.parameters)} parameters got no gradient in this backward pass: {names}. "
                "The loss does not depend on them. If that is meant, use find_unused_parameters=True; otherwise look "
                "for an output of the model that the loss leaves out"
            )

    def _wait(self, slot: _Slot) -> None:
        result, slot.under_way = slot.under_way.wait(), None
        if self.hook is not None:
            value = result[0] if isinstance(result, (list, tuple)) else result
            if value.data_ptr() != slot.buffer.data_ptr():
                with torch.no_grad():
                    slot.buffer.copy_(value.reshape(-1))

    def _hand_out(self, parameter: nn.Parameter, mean: torch.Tensor) -> None:
        with torch.no_grad():
            if self._as_views:
                parameter.grad = mean
            elif parameter.grad is None:
                parameter.grad = mean.clone()
            else:
                parameter.grad.copy_(mean)

    def _count_used(self, mine: Sequence[int]) -> list[bool]:
        """Say for each parameter if any rank has a gradient: if none has, it stays without one, as in one process."""
        used = torch.zeros(len(self.parameters), dtype=torch.int32, device=self.parameters[0].device)
        used[list(mine)] = 1
        dist.all_reduce(used, group=self._group)
        return [count > 0 for count in used.tolist()]
