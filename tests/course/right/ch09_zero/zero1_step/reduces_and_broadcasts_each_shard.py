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

    def step(gradient):
        mean = torch.empty_like(shard)
        parts = gradient.clone().chunk(num_ranks)
        for r in range(num_ranks):
            dist.reduce(parts[r], group_dst=r, group=group)
        mean = parts[dist.get_rank(group)] / num_ranks
        for piece, start, stop in places:
            piece.grad = mean[start:stop]
        optimizer.step()
        optimizer.zero_grad()
        for r, part in enumerate(flat.chunk(num_ranks)):
            dist.broadcast(part, group_src=r, group=group)

    return step
