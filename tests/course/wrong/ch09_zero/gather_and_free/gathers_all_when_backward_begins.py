# expect: DTL-RULE-GATHERED-KEPT
# says: those of others are gathered before they are needed

import torch
import torch.distributed as dist

WAITING = []


def gather_and_free(compute, shard, x, *, group=None):
    """When backward begins, all units are gathered."""
    n = dist.get_world_size(group)
    full = torch.empty(n * len(shard), requires_grad=torch.is_grad_enabled())
    memory = full.untyped_storage()
    nbytes = memory.nbytes()

    def gather():
        memory.resize_(nbytes)
        dist.all_gather(list(full.data.chunk(n)), shard.detach(), group=group)

    def gather_all(_):
        while WAITING:
            WAITING.pop()()

    def reduce(_):
        memory.resize_(0)
        mean = torch.empty_like(shard, requires_grad=False)
        dist.reduce_scatter(mean, list(full.grad.chunk(n)), group=group)
        full.grad = None
        shard.grad = mean / n

    gather()
    y = compute(full, x)
    memory.resize_(0)
    if y.requires_grad:
        WAITING.append(gather)
        y.register_hook(gather_all)
        full.register_post_accumulate_grad_hook(reduce)
    return y
