# expect: DTL-RAISED
# says: here under torch.no_grad() there is no backward pass

import torch
import torch.distributed as dist


def gather_and_free(compute, shard, x, *, group=None):
    n = dist.get_world_size(group)
    full = torch.empty(n * len(shard), requires_grad=torch.is_grad_enabled())
    storage = full.untyped_storage()
    nbytes = storage.nbytes()

    def gather(*_):
        storage.resize_(nbytes)
        dist.all_gather(list(full.data.chunk(n)), shard.detach(), group=group)

    def reduce(_):
        storage.resize_(0)
        gradient, full.grad = full.grad, None
        mean = torch.empty(len(shard))
        dist.reduce_scatter(mean, list((gradient / n).chunk(n)), group=group)
        shard.grad = mean

    gather()
    y = compute(full, x)
    storage.resize_(0)
    y.register_hook(gather)
    full.register_post_accumulate_grad_hook(reduce)
    return y
