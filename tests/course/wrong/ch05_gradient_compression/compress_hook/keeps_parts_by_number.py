# expect: DTL-RAISED
# says: after its first step PyTorch's makes other buckets

import torch
import torch.distributed as dist

kept = {}


def compress_hook(state, bucket):
    buffer, size = bucket.buffer(), dist.get_world_size(state)
    scale = buffer.abs().max().view(1) / 127
    codes = (buffer / scale).nan_to_num(0, 0, 0).round().to(torch.int8)
    if bucket.index() not in kept:
        kept[bucket.index()] = [torch.empty_like(codes) for _ in range(size)]
    scales = [torch.empty_like(scale) for _ in range(size)]
    parts = kept[bucket.index()]
    first = dist.all_gather(scales, scale, group=state, async_op=True)
    second = dist.all_gather(parts, codes, group=state, async_op=True)

    def decode(_):
        return sum(s * part for s, part in zip(scales, parts, strict=False)) / size

    return torch.futures.collect_all([first.get_future(), second.get_future()]).then(decode)
