# expect: DTL-RAISED
# says: optimizer got an empty parameter list
# says: It may help: a group may have no element
# says: where a shard is padding only, no group has

import torch
import torch.distributed as dist


def zero1_step(flat, groups, optimizer_class, *, group=None):
    num_ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    length = len(flat) // num_ranks
    first = rank * length
    shard = flat[first : first + length]
    places, param_groups = [], []
    for one in groups:
        options = dict(one)
        start, stop = (min(max(options.pop(name) - first, 0), length) for name in ("start", "stop"))
        if start == stop:
            continue
        piece = torch.nn.Parameter(shard[start:stop])
        places.append((piece, start, stop))
        param_groups.append({"params": [piece], **options})
    optimizer = optimizer_class(param_groups)

    def step(gradient):
        mean = torch.empty_like(shard)
        dist.reduce_scatter(mean, list(gradient.chunk(num_ranks)), group=group)
        mean /= num_ranks
        for piece, start, stop in places:
            piece.grad = mean[start:stop]
        optimizer.step()
        optimizer.zero_grad()
        dist.all_gather(list(flat.chunk(num_ranks)), shard, group=group)

    return step
