"""ZeRO stage 2 on a page: gradients are reduced to their owners as they become ready, and freed."""

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.flat_collectives import all_gather_single, reduce_scatter_single


class FlatBucket:
    """Parameters as views of one buffer, of which rank r owns the r-th of N equal shards."""

    def __init__(self, parameters: list[nn.Parameter], group: dist.ProcessGroup | None) -> None:
        self.parameters, self.group, self.num_ranks = parameters, group, dist.get_world_size(group)
        self.flat = self.flatten([p.detach() for p in parameters])  # (N k,)
        self.shard = nn.Parameter(self.flat.chunk(self.num_ranks)[dist.get_rank(group)])  # (k,)
        self.missing: set[torch.Tensor] = set(parameters)  # whose gradients are not there yet
        sizes = [p.numel() for p in parameters]
        for p, values in zip(parameters, self.flat[: sum(sizes)].split(sizes), strict=True):
            p.data = values.view_as(p)

    def flatten(self, tensors: list[Any]) -> torch.Tensor:
        """One after the other, and zeros until N divides the length: (N k,)."""
        padding = tensors[0].new_zeros(-sum(t.numel() for t in tensors) % self.num_ranks)
        return torch.cat([*(t.reshape(-1) for t in tensors), padding])

    def launch(self) -> None:
        """Begin to average the gradients over the ranks, and free the full ones."""
        gradient = self.flatten([p.grad for p in self.parameters]).div_(self.num_ranks)  # (N k,)
        for p in self.parameters:
            p.grad = None
        self.missing = set(self.parameters)
        self.mean = torch.empty_like(self.shard)  # (k,)
        self.work = reduce_scatter_single(self.mean, gradient, group=self.group, async_op=True)

    def wait(self) -> None:
        """Keep the mean; those of several backward passes add up."""
        self.work.wait()
        self.shard.grad = self.mean if self.shard.grad is None else self.shard.grad + self.mean
        del self.work, self.mean  # with the work goes the full gradient


class Zero2:
    """Trains a model on N ranks that begin with equal parameters, each on samples of its own.

        buckets = [FlatBucket(list(layer.parameters()), group) for layer in reversed(layers)]
        zero2 = Zero2(buckets, torch.optim.AdamW([bucket.shard for bucket in buckets], lr=1e-3))

    **Communication** (n bytes of parameters): reduce-scatter of n in each backward pass, all-gather
    of n in a step. **Memory**: n/N of gradients; in backward also those of one or two buckets.
    """

    def __init__(self, buckets: list[FlatBucket], optimizer: torch.optim.Optimizer) -> None:
        self.buckets, self.optimizer = buckets, optimizer
        self.launched = 0  # buckets, in this backward pass
        for bucket in buckets:
            for p in bucket.parameters:
                p.register_post_accumulate_grad_hook(partial(self.gradient_is_ready, bucket))

    def gradient_is_ready(self, bucket: FlatBucket, parameter: torch.Tensor) -> None:
        """Called in backward: launch what is complete, in the same order on every rank."""
        bucket.missing.remove(parameter)
        while self.launched < len(self.buckets) and not self.buckets[self.launched].missing:
            if self.launched > 0:
                self.buckets[self.launched - 1].wait()  # one at a time: its gradient takes memory
            self.buckets[self.launched].launch()
            self.launched += 1
        if self.launched == len(self.buckets):  # every parameter has had its gradient
            self.buckets[-1].wait()
            self.launched = 0

    def step(self) -> None:
        """Update this rank's shards, and fetch the others'."""
        self.optimizer.step()
        self.optimizer.zero_grad()
        for bucket in self.buckets:
            all_gather_single(bucket.flat, bucket.shard.detach(), group=bucket.group)
