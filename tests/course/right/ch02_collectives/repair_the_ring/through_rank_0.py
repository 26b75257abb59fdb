import torch
import torch.distributed as dist


def repair_the_ring(x):
    r, n = dist.get_rank(), dist.get_world_size()
    total, room = x.clone(), torch.empty_like(x)
    if r > 1 or (r == 0 and n > 1):
        dist.recv(room, (r - 1) % n)
        total += room
    if r:
        dist.send(total, (r + 1) % n)
    if r == 0 and n > 1:
        dist.send(total, 1)
    elif r:
        dist.recv(total, r - 1)
        if r < n - 1:
            dist.send(total, r + 1)
    return total
