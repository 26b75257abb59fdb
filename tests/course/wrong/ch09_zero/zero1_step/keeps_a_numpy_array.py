# expect: DTL-DIFFICULTY
# says: something of full length is kept besides flat

import torch
import torch.distributed as dist


def zero1_step(flat, groups, optimizer_class, *, group=None):
    num_ranks = dist.get_world_size(group)
    length = len(flat) // num_ranks
    first = dist.get_rank(group) * length
    shard = flat[first:][:length]
    places, param_groups = [], []
    for options in groups:
        start = min(max(options["start"] - first, 0), length)
        stop = min(max(options["stop"] - first, 0), length)
        piece = torch.nn.Parameter(shard[start:stop])
        places.append((piece, start, stop))
        others = {name: value for name, value in options.items() if name not in ("start", "stop")}
        param_groups.append({"params": [piece], **others})
    optimizer = optimizer_class(param_groups)

    last = []

    def step(gradient):
        last[:] = [gradient.numpy().copy()]
        mean = torch.empty_like(shard)
        dist.reduce_scatter(mean, list(gradient.chunk(num_ranks)), group=group)
        mean /= num_ranks
        for piece, start, stop in places:
            piece.grad = mean[start:stop]
        optimizer.step()
        optimizer.zero_grad()
        dist.all_gather(list(flat.chunk(num_ranks)), shard, group=group)

    return step
