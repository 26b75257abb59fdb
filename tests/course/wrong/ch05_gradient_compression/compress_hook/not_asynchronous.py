# expect: DTL-MISTAKE
# says: the hook waits for the gather

import torch
import torch.distributed as dist


def compress_hook(state, bucket):
    buffer, size = bucket.buffer(), dist.get_world_size(state)
    scale = buffer.abs().max().view(1) / 127
    codes = (buffer / scale).nan_to_num(0, 0, 0).round().to(torch.int8)
    scales = [torch.empty_like(scale) for _ in range(size)]
    parts = [torch.empty_like(codes) for _ in range(size)]
    dist.all_gather(scales, scale, group=state)
    dist.all_gather(parts, codes, group=state)
    future = torch.futures.Future()
    future.set_result(sum(s * part for s, part in zip(scales, parts, strict=False)) / size)
    return future
