"""What happens to a full bucket: communication hooks, in the protocol of PyTorch's DDP.

A hook is called as `hook(state, bucket)` when the bucket's last gradient is there, while backward goes on. It returns
a future of the tensor that takes the buffer's place. The buffer holds gradients that nobody has divided yet. PyTorch's
own hooks (`torch.distributed.algorithms.ddp_comm_hooks`) take our `GradBucket`, and PyTorch's DDP takes our hooks: it
insists on these very annotations, if there are any, and not as texts.
"""

# No `from __future__ import annotations` here: see above.
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future

Hook = Callable[[Any, Any], Future[Any]]


class GradBucket:
    """A bucket's gradients, as a hook sees them, with the methods of PyTorch's `dist.GradBucket`.

    Args:
        index: its place in the order in which buckets are launched, from 0.
        buffer: all gradients, one after the other, (elements,).
        gradients: views of the buffer, shaped as the parameters.
        parameters: in the same order.
        last: no bucket follows in this backward pass.
    """

    def __init__(
        self,
        index: int,
        buffer: torch.Tensor,
        gradients: Sequence[torch.Tensor],
        parameters: Sequence[nn.Parameter],
        last: bool,
    ) -> None:
        self._index, self._buffer, self._gradients = index, buffer, gradients
        self._parameters, self._last = parameters, last

    def index(self) -> int:
        return self._index

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def gradients(self) -> list[torch.Tensor]:
        return list(self._gradients)

    def parameters(self) -> list[torch.Tensor]:
        return list(self._parameters)

    def is_last(self) -> bool:
        return self._last

    def set_buffer(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer


def allreduce_hook(group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """The mean, as without a hook.

    **Communication**: one all-reduce of the bucket's bytes. **Memory**: none but the bucket.
    """
    buffer = bucket.buffer().div_(dist.get_world_size(group))
    future: Future[Any] = dist.all_reduce(buffer, group=group, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def fp16_compress_hook(group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """The mean, sent as float16: half the bytes, 11 bits of precision, and infinity above 65,504.

    **Communication**: one all-reduce of half the bucket's bytes (of float32).
    **Memory**: a copy of the bucket in float16 until it is done.
    """
    return _compressed(torch.float16, group, bucket)


def bf16_compress_hook(group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """The mean, sent as bfloat16: half the bytes, 8 bits of precision, the range of float32.

    gloo sums bfloat16 too, but PyTorch's DDP refuses every hook of this name where there is neither NCCL nor XCCL.

    **Communication** and **Memory**: as `fp16_compress_hook`.
    """
    return _compressed(torch.bfloat16, group, bucket)


def _compressed(dtype: torch.dtype, group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    buffer = bucket.buffer()
    # Divided first: the sum of N gradients overflows sooner than their mean.
    small = buffer.to(dtype).div_(dist.get_world_size(group))
    future: Future[Any] = dist.all_reduce(small, group=group, async_op=True).get_future()
    return future.then(lambda done: buffer.copy_(done.value()[0]))
