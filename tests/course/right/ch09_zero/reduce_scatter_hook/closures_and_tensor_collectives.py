from collections import deque
from types import SimpleNamespace

import torch
import torch.distributed as dist


def reduce_scatter_hook(buckets, *, group=None):
    size = dist.get_world_size(group)
    left, seen, shards, works = deque(), set(), [], deque()

    def start_over():
        left.extend(buckets)
        seen.clear()
        shards.clear()

    def launch():
        while works:
            works.popleft().wait()
        bucket = left.popleft()
        total = sum(p.numel() for p in bucket)
        shards.append(torch.empty(-(-total // size)))
        padded = torch.zeros(size, len(shards[-1]))
        torch.cat(
            [torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in bucket],
            out=padded.view(-1)[:total],
        )
        for p in bucket:
            p.grad = None
        works.append(dist.reduce_scatter_tensor(shards[-1], padded.view(-1), group=group, async_op=True))

    def hook(p):
        seen.add(p)
        while left and seen.issuperset(left[0]):
            launch()

    def finish():
        while left:
            launch()
        works.popleft().wait()
        means = [shard / size for shard in shards]
        start_over()
        return means

    for p in (p for bucket in buckets for p in bucket):
        p.register_post_accumulate_grad_hook(hook)
    start_over()
    return SimpleNamespace(finish=finish)
