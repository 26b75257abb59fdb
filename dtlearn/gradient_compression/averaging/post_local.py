"""Post-local SGD: data parallelism first, while the parameters still change much, and local steps then.

Source: Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020, arXiv
1808.07217. torch's counterparts are
`post_localSGD_hook`, `PeriodicModelAverager` and `PostLocalSGDOptimizer`.
"""

# No `from __future__ import annotations` here: see `dtlearn.sharing.comm_hooks`.
import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future
from torch.optim import Optimizer

from dtlearn.sharing.comm_hooks import allreduce_hook

from .periodic import PeriodicAveraging


class PostLocalSGD(PeriodicAveraging):
    """Averages the gradients of the first `warmup_steps` steps, then the parameters after every `period` steps.

        ddp = DistributedDataParallel(model)
        training = PostLocalSGD(ddp, optimizer, period=8, warmup_steps=100)
        ddp.register_comm_hook(training, post_local_hook)

    The hook does the warm-up: it is for torch's DDP and for ours. torch's own, with `start_localSGD_iter=warmup_steps`
    and `PeriodicModelAverager(period, warmup_steps=warmup_steps + period - 1)`, gives the same bits; with
    `warmup_steps=warmup_steps` it averages one local step after the warm-up, and every `period` steps from there.

    A model with buffers is wrapped with `broadcast_buffers=False`: a DDP sends those of rank 0 in every forward pass,
    also when it sends no gradients.

    **Communication** (n bytes of parameters): in the warm-up an all-reduce of n in each backward pass; then every
    `period` steps, and in each backward pass an all-reduce over `inner_group`, if there is one.
    **Memory**: n while it averages.

    Args:
        model: in a DistributedDataParallel over the ranks of `group`.
        warmup_steps: steps with averaged gradients.
        group: ranks that train together; None: all.
        inner_group: ranks near this one, which go on to average their gradients; None: nobody does.

    Raises:
        ValueError: warm-up steps below 0.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        period: int,
        warmup_steps: int,
        *,
        group: dist.ProcessGroup | None = None,
        inner_group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(model, optimizer, period, group=group)
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps must be 0 or more, got {warmup_steps}")
        self.warmup_steps, self.inner_group = warmup_steps, inner_group

    def is_due(self) -> bool:
        after = self.steps - self.warmup_steps
        return after > 0 and after % self.period == 0


def post_local_hook(state: PostLocalSGD, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """The mean over all ranks in the warm-up; then over the inner group, or the gradients as they are.

    **Communication**: one all-reduce of the bucket's bytes, or nothing. **Memory**: none but the bucket.
    """
    if state.steps < state.warmup_steps:
        return allreduce_hook(state.group, bucket)
    if state.inner_group is not None:
        return allreduce_hook(state.inner_group, bucket)
    buffer = bucket.buffer()
    # A future of tensors on a GPU has to know the device.
    future: Future[torch.Tensor] = Future(devices=[buffer.device]) if buffer.is_cuda else Future()
    future.set_result(buffer)
    return future
