# expect: DTL-ASYNC-WAIT
# says: the callback is for the end of both gathers

import torch
import torch.distributed as dist


def compress_hook(state, bucket):
    buffer, size = bucket.buffer(), dist.get_world_size(state)
    scale = buffer.abs().max().view(1) / 127
    codes = (buffer / scale).nan_to_num(0, 0, 0).round().to(torch.int8)
    scales = [torch.empty_like(scale) for _ in range(size)]
    parts = [torch.empty_like(codes) for _ in range(size)]
    dist.all_gather(scales, scale, group=state, async_op=True)
    second = dist.all_gather(parts, codes, group=state, async_op=True)
    mean = lambda _: sum(s * part for s, part in zip(scales, parts, strict=False)) / size  # noqa: E731
    return second.get_future().then(mean)
