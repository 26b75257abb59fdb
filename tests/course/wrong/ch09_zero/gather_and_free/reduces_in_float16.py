# expect: DTL-VALUE-ROUNDED
# says: rounded to 16 bits

import torch
import torch.distributed as dist


def gather_and_free(compute, shard, x, *, group=None):
    n = dist.get_world_size(group)
    full = torch.empty(n * len(shard), requires_grad=torch.is_grad_enabled())
    memory = full.untyped_storage()
    nbytes = memory.nbytes()

    def gather():
        memory.resize_(nbytes)
        dist.all_gather(list(full.data.chunk(n)), shard.detach(), group=group)

    def reduce(_):
        memory.resize_(0)
        mean = torch.empty_like(shard, requires_grad=False)
        half = torch.empty(len(shard), dtype=torch.float16)
        dist.reduce_scatter(half, [c.half() for c in full.grad.chunk(n)], group=group)
        mean.copy_(half)
        full.grad = None
        shard.grad = mean / n

    gather()
    y = compute(full, x)
    memory.resize_(0)
    if y.requires_grad:
        y.register_hook(lambda _: gather())
        full.register_post_accumulate_grad_hook(reduce)
    return y
