# expect: DTL-DIFFICULTY
# says: the hook is called for the next bucket before

import torch
import torch.distributed as dist


class Last:
    """What callbacks use: of the last call."""


def compress_hook(state, bucket):
    Last.buffer, size = bucket.buffer(), dist.get_world_size(state)
    scale = Last.buffer.abs().max().view(1) / 127
    codes = (Last.buffer / scale).nan_to_num(0, 0, 0).round().to(torch.int8)
    scales = [torch.empty_like(scale) for _ in range(size)]
    parts = [torch.empty_like(codes) for _ in range(size)]
    first = dist.all_gather(scales, scale, group=state, async_op=True)
    second = dist.all_gather(parts, codes, group=state, async_op=True)

    def decode(_):
        return Last.buffer.copy_(sum(s * part for s, part in zip(scales, parts, strict=False)) / size)

    return torch.futures.collect_all([first.get_future(), second.get_future()]).then(decode)
