# expect: DTL-VALUE-REPEATED
# says: all sent their own x in every step

import torch
import torch.distributed as dist


def ring_all_gather(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    gathered = [torch.empty_like(x) for _ in range(world_size)]
    gathered[rank].copy_(x)
    for step in range(world_size - 1):
        sending = dist.isend(gathered[rank], right)
        dist.recv(gathered[(rank - step - 1) % world_size], left)
        sending.wait()
    return gathered
