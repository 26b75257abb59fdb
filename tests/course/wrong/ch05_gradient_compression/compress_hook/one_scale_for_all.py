# expect: DTL-DIFFICULTY
# says: each rank's codes are to be multiplied

import torch
import torch.distributed as dist


def compress_hook(state, bucket):
    buffer, size = bucket.buffer(), dist.get_world_size(state)
    scale = buffer.abs().max() / 127
    dist.all_reduce(scale, dist.ReduceOp.MAX, group=state)
    codes = (buffer / scale).nan_to_num(0, 0, 0).round().to(torch.int8)
    parts = [torch.empty_like(codes) for _ in range(size)]
    work = dist.all_gather(parts, codes, group=state, async_op=True)
    return work.get_future().then(lambda _: torch.stack(parts).sum(0) * scale / size)
