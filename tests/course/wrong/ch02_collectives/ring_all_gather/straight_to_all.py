# expect: DTL-RULE-ROUTE
# says: sends to rank 2; in this ring it may send to rank 1 only

import torch
import torch.distributed as dist


def ring_all_gather(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    gathered = [torch.empty_like(x) for _ in range(world_size)]
    gathered[rank].copy_(x)
    for distance in range(1, world_size):
        sending = dist.isend(x, (rank + distance) % world_size)
        dist.recv(gathered[(rank - distance) % world_size], (rank - distance) % world_size)
        sending.wait()
    return gathered
