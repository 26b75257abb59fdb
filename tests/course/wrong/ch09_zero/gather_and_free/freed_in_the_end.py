# expect: DTL-DIFFICULTY
# says: before the next unit's backward pass

import torch
import torch.distributed as dist

kept = []


def gather_and_free(compute, shard, x, *, group=None):
    n = dist.get_world_size(group)
    full = torch.empty(n * len(shard), requires_grad=torch.is_grad_enabled())
    storage = full.untyped_storage()
    nbytes = storage.nbytes()

    def gather(*_):
        storage.resize_(nbytes)
        dist.all_gather(list(full.data.chunk(n)), shard.detach(), group=group)

    def reduce(_):
        kept.append((storage, full.grad))
        if not x.grad_fn:
            for one, _ in kept:
                one.resize_(0)
            kept.clear()
        gradient, full.grad = full.grad, None
        mean = torch.empty(len(shard))
        dist.reduce_scatter(mean, list((gradient / n).chunk(n)), group=group)
        shard.grad = mean

    gather()
    y = compute(full, x)
    storage.resize_(0)
    if y.requires_grad:
        y.register_hook(gather)
        full.register_post_accumulate_grad_hook(reduce)
    return y
