# expect: DTL-RAISED
# says: a buffer of zeros gives zeros

import torch
import torch.distributed as dist


def compress_hook(state, bucket):
    buffer, size = bucket.buffer(), dist.get_world_size(state)
    largest = buffer.abs().max().item()
    codes = (buffer * (127 / largest)).round().to(torch.int8)
    scale = torch.tensor([largest / 127])
    scales = [torch.empty_like(scale) for _ in range(size)]
    parts = [torch.empty_like(codes) for _ in range(size)]
    first = dist.all_gather(scales, scale, group=state, async_op=True)
    second = dist.all_gather(parts, codes, group=state, async_op=True)

    def decode(_):
        return sum(s * part for s, part in zip(scales, parts, strict=False)) / size

    return torch.futures.collect_all([first.get_future(), second.get_future()]).then(decode)
