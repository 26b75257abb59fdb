import torch
import torch.distributed as dist


def ping_pong(message):
    rank = dist.get_rank()
    partner = rank - 1 if rank & 1 else rank + 1
    if partner not in range(dist.get_world_size()):
        return None
    flat, theirs = message.flatten(), torch.empty(message.numel(), dtype=message.dtype)
    works = []
    for mine, other in zip(flat.split(1000), theirs.split(1000), strict=False):
        works.append(dist.irecv(other, partner))
        works.append(dist.isend(mine, partner))
    [w.wait() for w in works]
    return theirs.view(message.shape)
