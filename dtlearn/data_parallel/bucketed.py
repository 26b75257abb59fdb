"""Buckets and hooks, and nothing else: the page between `naive.py` and `ddp.py`.

A gradient that is complete is copied into its bucket; a bucket that is full is sent while backward goes on.
`DistributedDataParallel` does the same, and more: communication hooks, parameters that some ranks do not use, buffers,
gradients that lie in the buckets, ranks with fewer batches, and messages that name what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.gradient_buckets import MIB, describe, plan_buckets
from dtlearn.sharing.wrapping.backward_hooks import BackwardPass
from dtlearn.sharing.wrapping.copies import copy_in_group
from dtlearn.sharing.wrapping.replicas import broadcast_module, require_same_model, require_wrapped


class BucketedDataParallel(nn.Module):
    """A copy of the model on each rank; after `backward()` every copy has the mean of all gradients.

    A parameter without a gradient takes part with zeros, as in `naive.average_gradients`.

    **Communication** (P bytes of gradients in K buckets): once, `replicas.broadcast_module`; in each backward pass
    outside `no_sync()`, K all-reduces of P bytes together, launched while backward runs.
    **Memory**: the buckets, P bytes.

    Args:
        module: the model; the same shapes on every rank, on its device.
        group: ranks that train together; None: all.
        bucket_cap_mb: MiB that close a bucket; the first is closed at 1 MiB, if that is less.

    Raises:
        RuntimeError: the models of the ranks differ.
    """

    def __init__(self, module: nn.Module, *, group: dist.ProcessGroup | None = None, bucket_cap_mb: float = 25) -> None:
        super().__init__()
        require_same_model(module, group=group)
        broadcast_module(module, group=group)
        self.module = module
        self.group = group
        self.sync = True
        self.trained = [p for p in module.parameters() if p.requires_grad]
        nbytes, kinds = describe(self.trained)
        cap = int(bucket_cap_mb * MIB)
        self.plan = plan_buckets(nbytes, cap=cap, first_cap=min(cap, MIB), kinds=kinds)
        self.bucket_of = {number: bucket.index for bucket in self.plan for number in bucket.parameters}
        self.make_buffers()
        self.missing: list[set[int]] = []  # by bucket: parameters whose gradients are not there yet
        self.works: list[Any] = []  # all-reduces that are under way
        self._backward = BackwardPass(
            self.trained, begins=self.backward_begins, ready=self.gradient_is_ready, ends=self.backward_ends
        )

    def make_buffers(self) -> None:
        """The buckets' memory; a copy of this object has its own."""
        self.flat: list[torch.Tensor] = []  # one for each bucket
        self.views: dict[int, torch.Tensor] = {}  # each parameter's part of it
        for bucket in self.plan:
            members = [self.trained[number] for number in bucket.parameters]
            sizes = [p.numel() for p in members]
            self.flat.append(members[0].new_zeros(sum(sizes)))
            for number, part in zip(bucket.parameters, self.flat[-1].split(sizes), strict=True):
                self.views[number] = part.view_as(self.trained[number])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        outputs = self.module(*inputs, **kwargs)
        if torch.is_grad_enabled():
            require_wrapped(self.module, set(map(id, self.trained)))
            self._backward.follow(outputs, self.sync)
        return outputs

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this block gradients are only added up on each rank; it is the forward pass that decides."""
        before, self.sync = self.sync, False
        try:
            yield
        finally:
            self.sync = before

    def backward_begins(self, unused: Sequence[int]) -> None:
        """Called before the first gradient."""
        for work in self.works:  # an error has ended the last pass: its calls may still write to the buffers
            work.wait()
        self.works = []
        self.missing = [set(bucket.parameters) for bucket in self.plan]

    def gradient_is_ready(self, number: int) -> None:
        """Called for each gradient, as soon as it is complete: copy it, and launch the buckets that are full."""
        parameter, num_ranks = self.trained[number], dist.get_world_size(self.group)
        with torch.no_grad():
            if parameter.grad is None:
                self.views[number].zero_()
            else:
                torch.div(parameter.grad, num_ranks, out=self.views[number])
        self.missing[self.bucket_of[number]].remove(number)
        while len(self.works) < len(self.plan) and not self.missing[len(self.works)]:
            bucket = self.flat[len(self.works)]  # the next one in the order of the plan, on every rank
            self.works.append(dist.all_reduce(bucket, group=self.group, async_op=True))

    def backward_ends(self) -> None:
        """Called after the last gradient: wait, and hand the means out."""
        for number in [n for numbers in self.missing for n in numbers]:
            self.gradient_is_ready(number)  # no gradient came; the other ranks wait for its bucket
        for work in self.works:
            work.wait()
        self.works = []
        for number, parameter in enumerate(self.trained):
            if parameter.requires_grad:  # it may be frozen by now
                parameter.grad = self.views[number].clone()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.make_buffers()

    def __deepcopy__(self, memo: dict[int, Any]) -> BucketedDataParallel:
        return copy_in_group(self, memo, self.group)
