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

    everyone = dist.get_process_group_ranks(group or dist.group.WORLD)
    right, left = everyone[(rank + 1) % num_ranks], everyone[(rank - 1) % num_ranks]

    def exchange(sent, received):
        work = dist.isend(sent, right)
        dist.recv(received, left)
        work.wait()

    def step(gradient):
        mean = torch.empty_like(shard)
        parts = [part / num_ranks for part in gradient.chunk(num_ranks)]
        for k in range(1, num_ranks):
            exchange(parts[(rank - k) % num_ranks], mean)
            parts[(rank - k - 1) % num_ranks] += mean
        mean = parts[rank]
        for piece, start, stop in places:
            piece.grad = mean[start:stop]
        optimizer.step()
        shards = flat.chunk(num_ranks)
        for k in range(num_ranks - 1):
            exchange(shards[(rank - k) % num_ranks], shards[(rank - k - 1) % num_ranks])

    return step
