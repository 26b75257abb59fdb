# expect: DTL-DIFFICULTY
# says: or the whole mean

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
        piece = torch.nn.Parameter(shard[start:stop])
        places.append((piece, start, stop))
        param_groups.append({"params": [piece], **options})
    optimizer = optimizer_class(param_groups)
    buffer = torch.zeros_like(flat)

    def step(gradient):
        buffer.copy_(gradient / num_ranks)
        mean = torch.empty_like(shard)
        dist.reduce_scatter(mean, list(buffer.chunk(num_ranks)), group=group)
        for piece, start, stop in places:
            piece.grad = mean[start:stop]
        optimizer.step()
        dist.all_gather(list(flat.chunk(num_ranks)), shard, group=group)

    return step
