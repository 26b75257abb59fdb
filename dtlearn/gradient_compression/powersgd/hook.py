"""PowerSGD as a communication hook."""

# No `from __future__ import annotations` here: torch's DDP reads the annotations of a hook.
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from .exchange import BucketExchange
from .state import PowerSGDState


def powersgd_hook(state: PowerSGDState, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """The mean, to the rank of the state.

    **Communication** (a bucket's matrices (n, m), and u elements beside them): two all-reduces, of the sum of n r + u
    elements and of the sum of m r. The second waits for the first, so it is launched when the next bucket is there:
    in the order of the buckets on every rank, which calls from a future's callback would not keep.
    """
    if bucket.index() == 0:
        state.under_way.clear()  # an error may have ended the last pass
    if state.step < state.start_step:
        state.step += bucket.is_last()
        buffer = bucket.buffer().div_(dist.get_world_size(state.group))
        mean: Future[Any] = dist.all_reduce(buffer, group=state.group, async_op=True).get_future()
        return mean.then(lambda done: done.value()[0])
    state.step += bucket.is_last()
    here = BucketExchange(state, bucket)
    state.under_way.append(here)
    while len(state.under_way) > (0 if bucket.is_last() else 1):
        state.under_way.pop(0).send_qs()
    return here.future
